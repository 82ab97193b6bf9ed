"""Fetching in a process of its own: both ends of its pipe."""
