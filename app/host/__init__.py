"""The local machine: processes, sandbox programs, privacy of this process."""
