"""Online backups of the database, and restoring one while no process runs."""
