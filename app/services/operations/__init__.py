"""Running the platform: backups, retention, diagnosis, health, metrics, housekeeping."""
