"""States of a job and the transitions between them: events, outcomes, retries, leases, checkpoints."""
