"""Trace simulation with the real planner: what a scheduling policy does with a year of jobs, in a minute."""
