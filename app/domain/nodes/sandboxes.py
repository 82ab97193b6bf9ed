"""Sandbox kinds that nodes report, and why a node without one accepts no jobs."""

from collections.abc import Mapping
from types import MappingProxyType

BUBBLEWRAP = "bubblewrap"
PROCESS = "process"  # plain processes of the node worker's user; opt-in by the operator
LANDLOCK = "landlock"  # the same, kept out of files that are not their job's; opt-in by the operator
WITHOUT_NAMESPACES = (PROCESS, LANDLOCK)
MISSING, FORBIDDEN, UNFILTERED, UNLOCKED = "missing", "forbidden", "unfiltered", "unlocked"

WHY_NONE: Mapping[str, str] = MappingProxyType(
    {
        MISSING: "has no sandbox for jobs: bubblewrap is not installed there",
        FORBIDDEN: "has no sandbox for jobs: bubblewrap may not make namespaces there",
        UNFILTERED: "has no sandbox for jobs: libseccomp, which filters their system calls, is not installed there",
        UNLOCKED: "has no sandbox for jobs: its kernel has no Landlock, which was to keep them out of files",
    }
)
WAYS_OUT: Mapping[str, str] = MappingProxyType(
    {
        MISSING: "install it (apt install bubblewrap)",
        FORBIDDEN: "allow unprivileged user namespaces (docs/reference/isolation.md)",
        UNFILTERED: "install it (apt install libseccomp2)",
        UNLOCKED: "boot a kernel with it, or set TRAINYARD_NODE_SANDBOX to auto and install bubblewrap",
    }
)
AT_OWN_RISK = "where you trust all users with the machine, set TRAINYARD_NODE_SANDBOX=process"


def why_none(sandbox: str) -> str:
    """Why a node that reports this value accepts no jobs; empty where it does."""
    return WHY_NONE.get(sandbox, "")
