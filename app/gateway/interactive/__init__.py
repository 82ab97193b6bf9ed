"""Brings people to running jobs: shells, commands and forwarded connections, and the ports of jobs for browsers."""
