"""`trainyard recipes`: job documents for well-known models, from the folder `recipes`."""
