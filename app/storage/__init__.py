"""Storage of checkpoints, artifacts and logs of jobs, by URL."""
