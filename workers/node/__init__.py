"""The node worker: inventory, heartbeats, and one supervisor process per attempt."""
