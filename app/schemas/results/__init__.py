"""What a job leaves behind: attempts, events, logs, metrics, checkpoints, artifacts, reports."""
