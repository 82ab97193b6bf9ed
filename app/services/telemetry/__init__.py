"""Progress, metrics and TensorBoard of running jobs."""
