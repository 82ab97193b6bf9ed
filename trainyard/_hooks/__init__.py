"""What `trainyard.hooks` consists of: one rank's run, its stops and halts, and its end."""
