"""What ``training_config.framework.config`` asks of the platform for a custom script, beside patterns for metrics."""

from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Any

LAUNCHER = "launcher"  # who starts the ranks: the platform, one for each device, or one of LAUNCHERS
MPI = "mpi"  # also the capability of nodes that have Open MPI
LAUNCHERS = (MPI,)

CHECKPOINT_GLOB = "checkpoint_glob"
MAX_GLOB = 500


class InvalidGlob(ValueError):
    """A pattern that names no files of the script's own."""


def launcher(spec: Mapping[str, Any]) -> str:
    """What the job says there; empty for the platform's own."""
    return _option(spec, LAUNCHER)


def checkpoint_glob(spec: Mapping[str, Any]) -> str:
    """Which files, or directories, of the script's working directory are its checkpoints; empty for none."""
    return _option(spec, CHECKPOINT_GLOB)


def check_glob(pattern: str) -> None:
    """Raises InvalidGlob."""
    path = PurePosixPath(pattern)
    if len(pattern) > MAX_GLOB:
        raise InvalidGlob(f"the pattern has {len(pattern)} characters and may have {MAX_GLOB}")
    if path.is_absolute() or ".." in path.parts or not path.parts:
        raise InvalidGlob("name files below the directory that the script starts in, as in checkpoints/*.pt")
    if any("**" in part and part != "**" for part in path.parts) or path.parts[-1] == "**":
        raise InvalidGlob("** stands for directories between two /, as in **/last.ckpt")


def _option(spec: Mapping[str, Any], name: str) -> str:
    framework = (spec.get("training_config") or {}).get("framework") or {}
    config = framework.get("config") or {}
    return str(config.get(name) or "") if framework.get("type") == "CUSTOM" else ""
