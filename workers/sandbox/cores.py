"""Cores of an attempt's own: no other attempt on this machine that has some gets the same ones.

Who has a core is said by a lock on a file of the node's data directory, which the kernel frees with its supervisor.
"""

import fcntl
import itertools
import os
import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from workers.rank.resource_limits import CORES

DIRECTORY = "cores"  # of the data directory
SYSTEM = Path("/sys/devices/system")
_CHOOSING = "choosing.lock"


class OwnCores:
    """The cores, as long as this object is not released; none where ``wanted`` is more than were free."""

    def __init__(self, numbers: Sequence[int] = (), locks: Sequence[int] = (), *, wanted: int = 0, of: int = 0) -> None:
        self.numbers = tuple(sorted(numbers))
        self.wanted, self.of = wanted, of
        self._close = weakref.finalize(self, _close_all, tuple(locks))

    @property
    def as_limit(self) -> dict[str, list[int]]:
        """For workers.rank.resource_limits."""
        return {CORES: list(self.numbers)} if self.numbers else {}

    def release(self) -> None:
        """Idempotent."""
        self._close()


def take_cores(data_dir: Path, wanted: int, usable: Iterable[int], *, system: Path = SYSTEM) -> OwnCores:
    """So many of the usable cores, of one memory node if it has enough, or none if fewer are free. Raises OSError."""
    cores = sorted(usable)
    if not wanted:
        return OwnCores()
    directory = data_dir / DIRECTORY
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    with _alone(directory / _CHOOSING):
        free = {core: lock for core in cores if (lock := _try_lock(directory / str(core))) is not None}
        chosen = _chosen(list(free), wanted, _memory_nodes(system)) if len(free) >= wanted else []
        _close_all(lock for core, lock in free.items() if core not in chosen)
    return OwnCores(chosen, [free[core] for core in chosen], wanted=wanted, of=len(cores))


def ranges(cores: Iterable[int]) -> str:
    """As the kernel writes lists of cores: 0-3,8."""
    found = []
    for _, group in itertools.groupby(enumerate(sorted(cores)), key=lambda pair: pair[1] - pair[0]):
        numbers = [core for _, core in group]
        found.append(f"{numbers[0]}-{numbers[-1]}" if len(numbers) > 1 else str(numbers[0]))
    return ",".join(found)


def _chosen(free: Sequence[int], wanted: int, nodes: Mapping[int, int]) -> list[int]:
    """From the memory node with the fewest free cores that suffice; else from those with the most, in turn."""
    by_node: dict[int, list[int]] = {}
    for core in free:
        by_node.setdefault(nodes.get(core, 0), []).append(core)
    enough = [cores for cores in by_node.values() if len(cores) >= wanted]
    if enough:
        return min(enough, key=len)[:wanted]
    most_first = sorted(by_node.values(), key=len, reverse=True)
    return list(itertools.chain.from_iterable(most_first))[:wanted]


def _memory_nodes(system: Path) -> dict[int, int]:
    """The memory node of each core; nothing on a kernel that says none."""
    found = {}
    for path in system.glob("node/node[0-9]*/cpu[0-9]*"):
        if path.name[3:].isdecimal():
            found[int(path.name[3:])] = int(path.parent.name[4:])
    return found


@contextmanager
def _alone(path: Path) -> Iterator[None]:
    descriptor = os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _try_lock(path: Path) -> int | None:
    descriptor = os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    return descriptor


def _close_all(descriptors: Iterable[int]) -> None:
    for descriptor in descriptors:
        os.close(descriptor)
