"""NVIDIA Run:ai's API for trainings and workloads, over the native jobs."""
