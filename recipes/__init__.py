"""Recipes: job documents for well-known models, one folder for each family; `trainyard recipes list` shows them."""
