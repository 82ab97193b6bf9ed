"""Administrator commands, which work directly on the database."""
