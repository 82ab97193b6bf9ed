"""Saving checkpoints: asynchronous writes, host copies, the best weights."""
