"""Inference jobs: which weights they use, their submission, and what is known of their results."""
