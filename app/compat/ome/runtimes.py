"""Runtimes that are there without having been made, and what the kinds are called."""

from typing import Any

CLUSTER_KIND, KIND = "ClusterTrainingRuntime", "TrainingRuntime"
# Named by OME's examples; one of the same name that was made comes first.
BUILT_IN: dict[str, dict[str, Any]] = {
    "pytorch-runtime": {"mlPolicy": {"numNodes": 1, "torch": {"numProcPerNode": "auto"}}},
    "pytorch-distributed-runtime": {"mlPolicy": {"numNodes": 1, "torch": {"numProcPerNode": "auto"}}},
    "mpi-runtime": {"mlPolicy": {"numNodes": 1, "mpi": {"numProcPerNode": "1", "mpiImplementation": "OpenMPI"}}},
}
