"""Preparing an attempt: inputs, resume point, run directory, preflight."""
