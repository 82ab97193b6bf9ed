"""What the platform means, in plain Python: no clock, database, network or framework."""
