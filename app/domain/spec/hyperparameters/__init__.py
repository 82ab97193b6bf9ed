"""Hyperparameters of each training method: types, ranges, parsing."""
