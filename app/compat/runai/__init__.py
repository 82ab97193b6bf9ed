"""NVIDIA Run:ai's trainings: workloads in and out, suspended and resumed, over the jobs of Trainyard."""
