"""Placement of jobs whose processes differ: instances of roles, packed onto few nodes."""
