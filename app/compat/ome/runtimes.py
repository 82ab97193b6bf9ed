"""Built-in runtimes, and the names of the kinds."""

from typing import Any

CLUSTER_KIND, KIND = "ClusterTrainingRuntime", "TrainingRuntime"
# Used by OME's examples; a stored runtime of the same name overrides one.
BUILT_IN: dict[str, dict[str, Any]] = {
    "pytorch-runtime": {"mlPolicy": {"numNodes": 1, "torch": {"numProcPerNode": "auto"}}},
    "pytorch-distributed-runtime": {"mlPolicy": {"numNodes": 1, "torch": {"numProcPerNode": "auto"}}},
    "mpi-runtime": {"mlPolicy": {"numNodes": 1, "mpi": {"numProcPerNode": "1", "mpiImplementation": "OpenMPI"}}},
}
