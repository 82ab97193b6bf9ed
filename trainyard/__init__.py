"""What users of Trainyard import: `trainyard.hooks` for training scripts."""
