"""Sending a job's stored metrics to tracking services of users, which may be slow, away or hostile."""
