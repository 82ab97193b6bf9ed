"""TensorBoard for jobs that ask for it, as a process beside the API."""
