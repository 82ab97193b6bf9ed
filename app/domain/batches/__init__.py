"""Batches of requests: their states, and what may be asked."""
