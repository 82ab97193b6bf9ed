"""Rows of jobs and of what belongs to one job."""
