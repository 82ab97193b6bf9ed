"""The registry of nodes: heartbeats, labels, maintenance, reliability, capacity."""
