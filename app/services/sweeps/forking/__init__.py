"""Trials that begin with the checkpoint of another trial: trunks, and population based training."""
