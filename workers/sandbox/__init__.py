"""The sandbox of a job's processes: mounts, devices, launcher."""
