"""Roles of a job in pages: their instances, and their rows in the form."""
