"""OME's training jobs and runtimes as resources of Kubernetes, over the native jobs."""
