"""What `trainyard doctor` looks at: one small check for each thing that goes wrong in real deployments."""
