"""Counts the kernel's out-of-memory kills of the machine and of our control group."""

import contextlib
from collections import deque
from collections.abc import Callable
from pathlib import Path

PROC = Path("/proc")
CGROUPS = Path("/sys/fs/cgroup")
# Earlier kills explain nothing: a rank, or its data loader, ends within a moment of its kill.
SAMPLE_SECONDS = 10.0


def count(proc: Path = PROC, cgroups: Path = CGROUPS) -> int:
    """A counter that rises with every such kill; only differences are meaningful.

    The machine's counter does not rise everywhere for kills within a container, and outside of one the container's
    does not exist, so both are added up.
    """
    return _counter(proc / "vmstat") + sum(_counter(path) for path in _of_own_group(proc, cgroups))


class RecentKills:
    """Kills since the sample before the last one: 10 to 20 s when sampled every ``SAMPLE_SECONDS``."""

    def __init__(self, counting: Callable[[], int] = count) -> None:
        self._counting = counting
        self._counts = deque([counting()], maxlen=2)

    def look(self) -> None:
        self._counts.append(self._counting())

    @property
    def number(self) -> int:
        return self._counting() - self._counts[0]


class KillWatch:
    """Samples kills until the first rank has failed: later ones are not its cause."""

    def __init__(self, kills: RecentKills, call_after: Callable[[float, Callable[[], None]], None]) -> None:
        self._kills: RecentKills | None = kills
        self._call_after = call_after
        call_after(SAMPLE_SECONDS, self._sample)

    def take(self) -> int | None:
        """The number of recent kills; None if it was taken before."""
        kills, self._kills = self._kills, None
        return kills.number if kills is not None else None

    def _sample(self) -> None:
        if self._kills is not None:
            self._kills.look()
            self._call_after(SAMPLE_SECONDS, self._sample)


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
