"""Resource limits of the kernel (see setrlimit(2)) for what an agent starts. Standard library only.

A process without capabilities can't raise its hard limits, so that these hold for all that a job starts.
"""

import os
import resource
from collections.abc import Mapping
from typing import Any

OPEN_FILES, STACK_MB, LOCKED_MB, PROCESSES = "open_files", "stack_mb", "locked_mb", "processes"
CORES = "cores"
_KINDS = {
    OPEN_FILES: (resource.RLIMIT_NOFILE, 1),
    STACK_MB: (resource.RLIMIT_STACK, 1 << 20),
    LOCKED_MB: (resource.RLIMIT_MEMLOCK, 1 << 20),
    PROCESSES: (resource.RLIMIT_NPROC, 1),
}


def limit_resources(limits: Mapping[str, Any]) -> None:
    """For this process and all that it will start: amounts by name, and the cores to stay on.

    Never above what this process itself may have.
    """
    # A core dump would hold the job's secrets, and may be written by a process of root.
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    for name, amount in limits.items():
        if name == CORES:
            os.sched_setaffinity(0, amount)  # a process may undo it, unless a control group holds it there
            continue
        kind, unit = _KINDS[name]
        limit = _possible(kind, amount * unit)
        resource.setrlimit(kind, (limit, limit))


def most_possible(name: str) -> int | None:
    """The largest limit of this name that a child of this process may have; None: any."""
    kind, unit = _KINDS[name]
    most = resource.getrlimit(kind)[1]
    return None if most == resource.RLIM_INFINITY else most // unit


def _possible(kind: int, limit: int) -> int:
    most = resource.getrlimit(kind)[1]
    return limit if most == resource.RLIM_INFINITY else min(limit, most)
