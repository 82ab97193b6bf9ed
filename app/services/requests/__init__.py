"""What every request needs: idempotency, pagination, wake-ups of workers, access to storage."""
