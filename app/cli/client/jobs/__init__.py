"""Commands for jobs: `trainyard jobs …`, and those that have a name of their own beside it."""
