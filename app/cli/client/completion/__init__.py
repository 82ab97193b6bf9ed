"""Completion in shells: commands and options by click, and what the server has by its answers."""
