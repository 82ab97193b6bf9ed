"""The database engine, its sessions and transactions."""
