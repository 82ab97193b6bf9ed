"""Queues, their limits, and what projects may use of the cluster."""
