"""OME's TrainingJobs, runtimes and base models as Kubernetes resources, over the native jobs."""
