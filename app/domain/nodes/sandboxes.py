"""Sandbox kinds that nodes report, and why a node without one accepts no jobs."""

from collections.abc import Mapping
from types import MappingProxyType

BUBBLEWRAP = "bubblewrap"
PROCESS = "process"  # plain processes of the node worker's user; opt-in by the operator
LANDLOCK = "landlock"  # the same, kept out of files that are not their job's; opt-in by the operator
WITHOUT_NAMESPACES = (PROCESS, LANDLOCK)
MISSING, FORBIDDEN, UNFILTERED, UNLOCKED = "missing", "forbidden", "unfiltered", "unlocked"
UNDIVIDED = "undivided"  # its GPUs can't be given to jobs apart from each other
BELOW = "below"  # what its operator demands of it

WHY_NONE: Mapping[str, str] = MappingProxyType(
    {
        MISSING: "has no sandbox for jobs: bubblewrap is not installed there",
        FORBIDDEN: "has no sandbox for jobs: bubblewrap may not make namespaces there",
        UNFILTERED: "has no sandbox for jobs: libseccomp, which filters their system calls, is not installed there",
        UNLOCKED: "has no sandbox for jobs: its kernel has no Landlock, which was to keep them out of files",
        UNDIVIDED: "can't give a job its GPUs alone: its driver doesn't tell which device file is which GPU's",
        BELOW: "isolates jobs less than its operator demands (TRAINYARD_NODE_SANDBOX_LEAST)",
    }
)
WAYS_OUT: Mapping[str, str] = MappingProxyType(
    {
        MISSING: "install it (apt install bubblewrap)",
        FORBIDDEN: "allow unprivileged user namespaces (docs/reference/isolation.md)",
        UNFILTERED: "install it (apt install libseccomp2)",
        UNLOCKED: "boot a kernel with it, or set TRAINYARD_NODE_SANDBOX to auto and install bubblewrap",
        UNDIVIDED: "show /proc/driver/nvidia, and for MIG slices /dev/nvidia-caps, to its worker, or run a worker for "
        "each GPU, in a container with that one",
        BELOW: "see the log of its worker for what it lacks, or demand less there, and start its worker again",
    }
)
AT_OWN_RISK = "where you trust all users with the machine, set TRAINYARD_NODE_SANDBOX=process"


def way_out(lack: str) -> str:
    """Of a node that reports this value."""
    return WAYS_OUT[lack] if lack == BELOW else f"{WAYS_OUT[lack]}, or, {AT_OWN_RISK}"


def why_none(sandbox: str) -> str:
    """Why a node that reports this value accepts no jobs; empty where it does."""
    return WHY_NONE.get(sandbox, "")
