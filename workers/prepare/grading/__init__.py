"""Runs of Python graders for clients that try them, in a sandbox."""
