"""Searches for hyperparameters in ModelArts' vocabulary, which are sweeps, and their trials."""
