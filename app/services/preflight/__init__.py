"""Preflight: a submitted job's data and model are inspected on a node before the job is queued."""
