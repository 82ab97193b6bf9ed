"""The machine below: processes, sandbox programs, privacy of this process."""
