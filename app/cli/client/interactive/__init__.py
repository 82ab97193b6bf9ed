"""The commands that reach a running job: commands and shells in it, its ports, its notebook, SSH."""
