"""Evaluations: their submission, what they have measured, and comparisons of them."""
