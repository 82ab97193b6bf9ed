"""What users of Trainyard import: `trainyard.hooks` for training scripts, `trainyard.client` for the HTTP API."""
