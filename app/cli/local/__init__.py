"""Commands that run Trainyard's processes on this machine: `trainyard up`, `demo`, and each process alone."""
