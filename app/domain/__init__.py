"""Domain rules in plain Python: no clock, database, network or framework."""
