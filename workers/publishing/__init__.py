"""Finished models on their way out of the platform: to a place of the user's, or onto a model hub."""
