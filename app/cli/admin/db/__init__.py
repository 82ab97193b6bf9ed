"""`trainyard db`: migrations, backups, pruning."""
