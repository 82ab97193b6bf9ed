"""Attempts of jobs: leases, completion, recovery, checkpoints, artifacts."""
