"""Batches of requests: creation, commands, steps, and the files with their answers."""
