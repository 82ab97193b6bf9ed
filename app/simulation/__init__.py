"""Replays of traces with the planner itself: what a policy would do with a year of jobs, in a minute."""
