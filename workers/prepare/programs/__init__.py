"""What the ranks of a job run on this node: its scripts and commands, their variables and devices."""
