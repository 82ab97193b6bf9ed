"""How often the kernel has killed a process for want of memory: the machine's, or that of our own share of it."""

import contextlib
from collections import deque
from collections.abc import Callable
from pathlib import Path

PROC = Path("/proc")
CGROUPS = Path("/sys/fs/cgroup")
# What was killed before explains nothing: a rank, or the data loader of one, ends within a moment of its kill.
LOOK_SECONDS = 10.0


def count(proc: Path = PROC, cgroups: Path = CGROUPS) -> int:
    """A number that rises with every such kill; what it is says nothing.

    The machine's own counter does not rise everywhere for what happens within a container, and the container's is not
    there without one, so both are added up.
    """
    return _counter(proc / "vmstat") + sum(_counter(path) for path in _of_own_group(proc, cgroups))


class RecentKills:
    """Those since the look before the last one: of 10 to 20 s, when somebody looks every ``LOOK_SECONDS``."""

    def __init__(self, counting: Callable[[], int] = count) -> None:
        self._counting = counting
        self._counts = deque([counting()], maxlen=2)

    def look(self) -> None:
        self._counts.append(self._counting())

    @property
    def number(self) -> int:
        return self._counting() - self._counts[0]


def _of_own_group(proc: Path, cgroups: Path) -> list[Path]:
    """Version 2 has one tree and ``memory.events``, version 1 one for memory and ``memory.oom_control``."""
    found = []
    for line in _lines(proc / "self/cgroup"):
        _, controllers, path = line.split(":", 2)
        inside = path.lstrip("/")
        if not controllers:
            found += [cgroups / inside / "memory.events", cgroups / "memory.events"]
        elif "memory" in controllers.split(","):
            found += [cgroups / "memory" / inside / "memory.oom_control", cgroups / "memory/memory.oom_control"]
    # In a container its own group is mounted as the root, under a path that is not the one named.
    return [path for path in dict.fromkeys(found) if path.exists()]


def _counter(path: Path) -> int:
    for line in _lines(path):
        name, _, value = line.partition(" ")
        if name == "oom_kill" and value.isdigit():
            return int(value)
    return 0


def _lines(path: Path) -> list[str]:
    with contextlib.suppress(OSError):
        return path.read_text().splitlines()
    return []
