"""Names of processes that stay unique across machines, reboots, containers and reused pids."""

import os
import socket

from app.host.processes import place, start_ticks


def own_name() -> str:
    """``host:boot/pid-namespace:pid:start``, the start in clock ticks since boot."""
    return f"{socket.gethostname()}:{place()}:{os.getpid()}:{start_ticks(os.getpid())}"


def is_provably_dead(name: str) -> bool:
    """Whether that process certainly ended: it ran in this boot and PID namespace, and is not there."""
    parts = name.rsplit(":", 3)
    if len(parts) != 4 or parts[1] != place() or not parts[2].isdecimal():
        return False
    return str(start_ticks(int(parts[2]))) != parts[3]
