"""The training loop: arguments, batches, stopping and saving, parallelism."""
