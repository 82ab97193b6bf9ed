"""Options of each framework, and what it requires of a node."""
