"""Runtimes as resources: those that are built in, and those that were made."""

from typing import Any

from app.compat.ome.dialect import API_VERSION
from app.compat.ome.from_native import moment, resource_version
from app.models import TrainingRuntime

CLUSTER_KIND, KIND = "ClusterTrainingRuntime", "TrainingRuntime"
# Named by OME's examples; one of the same name that was made comes first.
BUILT_IN: dict[str, dict[str, Any]] = {
    "pytorch-runtime": {"mlPolicy": {"numNodes": 1, "torch": {"numProcPerNode": "auto"}}},
    "pytorch-distributed-runtime": {"mlPolicy": {"numNodes": 1, "torch": {"numProcPerNode": "auto"}}},
    "mpi-runtime": {"mlPolicy": {"numNodes": 1, "mpi": {"numProcPerNode": "1", "mpiImplementation": "OpenMPI"}}},
}


def object_of(row: TrainingRuntime) -> dict[str, Any]:
    namespace = {"namespace": row.project} if row.project else {}
    return {
        "apiVersion": API_VERSION,
        "kind": KIND if row.project else CLUSTER_KIND,
        "metadata": {
            "name": row.name,
            **namespace,
            "uid": row.id.partition("-")[2],
            "resourceVersion": resource_version(row.updated_at, row.version),
            "generation": row.version,
            "creationTimestamp": moment(row.created_at),
            "labels": row.labels,
            "annotations": row.annotations,
        },
        "spec": row.spec,
    }


def built_in(name: str) -> dict[str, Any]:
    return {
        "apiVersion": API_VERSION,
        "kind": CLUSTER_KIND,
        "metadata": {
            "name": name, "uid": name, "resourceVersion": "100001", "generation": 1,
            "labels": {"ome.io/built-in": "true"},
        },
        "spec": BUILT_IN[name],
    }  # fmt: skip
