"""Who starts the ranks of a custom script: the platform, one for each device, or mpirun."""

from collections.abc import Mapping
from typing import Any

OPTION = "launcher"  # of training_config.framework.config
MPI = "mpi"  # also the capability of nodes that have Open MPI
LAUNCHERS = (MPI,)


def launcher(spec: Mapping[str, Any]) -> str:
    """One of LAUNCHERS, or what else the script says there; empty for the platform's own."""
    framework = (spec.get("training_config") or {}).get("framework") or {}
    config = framework.get("config") or {}
    return str(config.get(OPTION) or "") if framework.get("type") == "CUSTOM" else ""
