"""Limits of an attempt on this node, by control groups of the kernel: version 2, and version 1.

See cgroups(7) and the kernel's admin-guide/cgroup-v2 and cgroup-v1. The group of an attempt lies below the one that the
node worker is in, as far as that may be written: root may. In version 2 a worker in a service of systemd makes them
below the root of all groups instead (docs/decisions/0133).
"""

import contextlib
import errno
import os
import signal
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from app.domain.spec.frameworks.requirements import READ_LIMITS, WRITE_LIMITS
from app.host.oom_score import RAISED_BY_SHELL
from app.host.processes import ATTEMPT_GROUPS
from workers.sandbox.cores import ranges
from workers.sandbox.disk_rates import RATES, READ_BYTES, DiskRates, disks, rate_files

PROC = Path("/proc")
GROUPS = Path("/sys/fs/cgroup")
PARENT = ATTEMPT_GROUPS  # of all groups of attempts
PLATFORM = "trainyard-platform"  # version 2: where our own processes are, as groups with children may have none
MEMORY, PROCESSES, CPU = "memory", "pids", "cpu"
CONTROLLERS = (MEMORY, PROCESSES, CPU)
CORES, DISKS = "cpuset", "io"  # used where they are there; the others are needed
_DISKS_OF_VERSION_1 = "blkio"
_MEMORY_NODES = "cpuset.mems"
_SERVICE = ".service"
_WEIGHT = "25"  # of all attempts together in version 2, where others have 100: the platform's processes come first
_PERIOD_MICROSECONDS = 100_000
_KILL_SECONDS = 1.0
_POLL_SECONDS = 0.01
_NEW_SECONDS = 60.0  # the first process of a new group may not have joined yet


@dataclass(frozen=True, kw_only=True)
class GroupLimits:
    """What an attempt may use on one node; 0: no limit."""

    memory_mb: int = 0
    processes: int = 0  # threads count, too
    cpus: float = 0.0
    cores: tuple[int, ...] = ()  # on which its processes stay; as far as groups can hold it, else as they please
    disks: DiskRates = DiskRates()  # noqa: RUF009 – frozen

    @property
    def controllers(self) -> frozenset[str]:
        """What has to hold them."""
        found = {MEMORY: self.memory_mb, PROCESSES: self.processes, CPU: self.cpus, DISKS: self.disks}
        return frozenset(name for name, limit in found.items() if limit)


@dataclass(frozen=True)
class ControlGroup:
    """The control group of an attempt; in version 1 one directory for each controller."""

    directories: Mapping[str, Path]  # controller → directory
    version: int

    @property
    def joined(self) -> tuple[Path, ...]:
        """Files into which a process writes 0 to join."""
        return tuple(dict.fromkeys(path / "cgroup.procs" for path in self.directories.values()))

    def limit(self, limits: GroupLimits) -> None:
        """As far as this machine has the controllers. Raises OSError."""
        for name in limits.controllers & self.directories.keys():
            for file, value in _values(name, limits, self.version):
                try:
                    _write(self.directories[name] / file, value)
                except OSError as error:
                    if name != DISKS or error.errno != errno.ENODEV:  # a disk may have been removed meanwhile
                        raise

    @property
    def memory_kills(self) -> int:
        """How many processes the kernel has killed at the memory limit of this group."""
        if MEMORY not in self.directories:
            return 0
        file = "memory.events" if self.version == 2 else "memory.oom_control"
        return _counter(self.directories[MEMORY] / file, "oom_kill")

    def remove(self) -> bool:
        """Kill what is left in the group, and remove it; False while a process does not end."""
        until = time.monotonic() + _KILL_SECONDS
        for path in set(self.directories.values()):
            while path.exists():
                _kill_all(path)
                with contextlib.suppress(OSError):
                    path.rmdir()
                    break
                if time.monotonic() > until:
                    return False
                time.sleep(_POLL_SECONDS)
        return True


@dataclass(frozen=True)
class Hierarchies:
    """Where groups can be made on this machine."""

    parents: Mapping[str, Path]  # controller → directory of the groups of attempts
    version: int
    cores: Path | None = None  # of those that hold processes on cores; None: they can't be made
    disks: Path | None = None  # of those that hold rates of disks; None likewise

    @property
    def held_rates(self) -> tuple[str, ...]:
        """The capabilities of a node for limits of reading and writing: version 1 doesn't hold what is written back."""
        if self.disks is None:
            return ()
        return (READ_LIMITS, WRITE_LIMITS) if self.version == 2 else (READ_LIMITS,)

    def make(self, name: str, limits: GroupLimits) -> ControlGroup:
        """A group with these limits; also removes those of attempts that have ended. Raises OSError."""
        directories = {}
        pinning = {CORES: self.cores} if self.cores is not None and limits.cores else {}
        rated = {DISKS: self.disks} if self.disks is not None and limits.disks else {}
        for controller, parent in {**self.parents, **pinning, **rated}.items():
            _remove_empty(parent)
            directories[controller] = parent / name
            directories[controller].mkdir(parents=True, exist_ok=True)
        group = ControlGroup(directories, self.version)
        try:
            if pinning:
                _hold(directories[CORES], limits.cores)
            group.limit(limits)
        except OSError:
            for path in set(directories.values()):
                with contextlib.suppress(OSError):
                    path.rmdir()
            raise
        return group


def find_hierarchies(*, proc: Path = PROC, groups: Path = GROUPS) -> Hierarchies:
    """The controllers with which a group could be made just now; none without permission."""
    own = dict(_own_groups(proc))
    if (groups / "cgroup.controllers").exists():
        return _version_2(groups / own.get("", "").lstrip("/"), groups)
    parents = {}
    for name in CONTROLLERS:
        mounted = groups / name
        # In a container its own group is mounted as the root, under a path that is not the one named.
        inside = mounted / own.get(name, "").lstrip("/")
        parent = (inside if inside.is_dir() else mounted) / PARENT
        if mounted.is_dir() and _is_usable(parent):
            parents[name] = parent
    disks = _version_1_disks(groups / _DISKS_OF_VERSION_1, own.get(_DISKS_OF_VERSION_1, ""))
    return Hierarchies(parents, 1, _version_1_cores(groups / CORES, own.get(CORES, "")), disks)


def _version_1_disks(mounted: Path, own: str) -> Path | None:
    """Where groups for rates of disks can be made, if the kernel throttles."""
    inside = mounted / own.lstrip("/")
    parent = (inside if inside.is_dir() else mounted) / PARENT
    return parent if (mounted / READ_BYTES).exists() and _is_usable(parent) else None


def _version_1_cores(mounted: Path, own: str) -> Path | None:
    """Where groups for cores can be made. A new one of version 1 has no cores and no memory until it gets some."""
    inside = mounted / own.lstrip("/")
    base = inside if inside.is_dir() else mounted
    parent = base / PARENT
    if not mounted.is_dir() or not _is_usable(parent):
        return None
    try:
        for file in (_MEMORY_NODES, "cpuset.cpus"):
            if not _words(parent / file):
                _write(parent / file, (base / file).read_text().strip())
    except OSError:
        return None
    return parent


# Before the command starts anything: a process that joined later would leave its children outside.
_JOIN = RAISED_BY_SHELL + 'while [ "$1" != -- ]; do echo 0 > "$1" || exit; shift; done; shift; exec "$@"'


def joining(files: Sequence[Path], command: Sequence[str]) -> Sequence[str]:
    """The command, in the control groups with these files, and ended before the platform where memory runs out."""
    return ["sh", "-c", _JOIN, "sh", *map(str, files), "--", *command]


def _version_2(own: Path, root: Path) -> Hierarchies:
    """A group whose controllers other groups have may have no processes, but for the root. So systemd could not start a
    service again whose own group had them, while attempts of the last start continue in it.
    """
    is_service = own.suffix == _SERVICE
    base = root if is_service else own.parent if own.name == PLATFORM else own
    parent = base / PARENT
    try:
        parent.mkdir(exist_ok=True)
        missing = [name for name in CONTROLLERS if name not in _words(base / "cgroup.subtree_control")]
        if missing and not is_service:
            _move_processes(base, base / PLATFORM)
        for directory in (base, parent):
            _write(directory / "cgroup.subtree_control", " ".join(f"+{name}" for name in CONTROLLERS))
        _write(parent / "cpu.weight", _WEIGHT)
    except OSError:
        return Hierarchies({}, 2)
    if not _is_usable(parent):
        return Hierarchies({}, 2)
    cores, disks = (parent if _has_controller(name, base, parent) else None for name in (CORES, DISKS))
    has_rates = (parent / RATES).exists()  # not in every kernel that has the controller
    return Hierarchies(dict.fromkeys(CONTROLLERS, parent), 2, cores, disks if has_rates else None)


def _has_controller(name: str, base: Path, parent: Path) -> bool:
    """Give groups of attempts a controller, which this group need not have been given itself."""
    if name not in _words(base / "cgroup.controllers"):
        return False
    with contextlib.suppress(OSError):
        for directory in (base, parent):
            _write(directory / "cgroup.subtree_control", f"+{name}")
        return True
    return False


def _hold(group: Path, cores: Sequence[int]) -> None:
    """Raises OSError."""
    if not _words(group / _MEMORY_NODES) and (group.parent / _MEMORY_NODES).exists():
        (group / _MEMORY_NODES).write_text((group.parent / _MEMORY_NODES).read_text().strip())
    (group / "cpuset.cpus").write_text(ranges(cores))


def _move_processes(source: Path, target: Path) -> None:
    target.mkdir(exist_ok=True)
    for pid in _words(source / "cgroup.procs"):
        with contextlib.suppress(ProcessLookupError):
            _write(target / "cgroup.procs", pid)


def _own_groups(proc: Path) -> Iterator[tuple[str, str]]:
    """(controller, path) of this process; in version 2 the controller is empty."""
    for line in (proc / "self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        for controller in controllers.split(","):
            yield controller, path


def _is_usable(parent: Path) -> bool:
    trial = parent / f"trial-{os.getpid()}"
    try:
        trial.mkdir(parents=True)
    except OSError:
        return False
    with contextlib.suppress(OSError):
        trial.rmdir()
    return True


def _values(controller: str, limits: GroupLimits, version: int) -> Sequence[tuple[str, str]]:
    """(file, text) for one limit."""
    if controller == DISKS:
        return tuple(rate_files(limits.disks, version, disks()))
    memory, quota = str(limits.memory_mb << 20), str(round(limits.cpus * _PERIOD_MICROSECONDS))
    if controller == PROCESSES:
        return (("pids.max", str(limits.processes)),)
    if controller == CPU and version == 2:
        return (("cpu.max", f"{quota} {_PERIOD_MICROSECONDS}"),)
    if controller == CPU:
        return ("cpu.cfs_period_us", str(_PERIOD_MICROSECONDS)), ("cpu.cfs_quota_us", quota)
    if version == 2:  # one kill ends all: no rank trains without the others
        return ("memory.max", memory), ("memory.swap.max", "0"), ("memory.oom.group", "1")
    return ("memory.limit_in_bytes", memory), ("memory.memsw.limit_in_bytes", memory)


_WITHOUT_SWAP = ("memory.memsw.limit_in_bytes", "memory.swap.max")  # missing where the kernel counts no swap


def _write(path: Path, text: str) -> None:
    if path.name in _WITHOUT_SWAP and not path.exists():
        return
    path.write_text(text)


def _kill_all(directory: Path) -> None:
    kill = directory / "cgroup.kill"
    if kill.exists():
        with contextlib.suppress(OSError):
            kill.write_text("1")
        return
    for pid in _words(directory / "cgroup.procs"):
        with contextlib.suppress(ProcessLookupError):
            os.kill(int(pid), signal.SIGKILL)


def _remove_empty(parent: Path) -> None:
    """Remove what supervisors left that were killed; a group with a process in it is busy and stays."""
    for path in parent.glob("*") if parent.exists() else ():
        with contextlib.suppress(OSError):
            if path.is_dir() and time.time() - path.stat().st_mtime > _NEW_SECONDS:
                path.rmdir()


def _counter(path: Path, name: str) -> int:
    with contextlib.suppress(OSError):
        for line in path.read_text().splitlines():
            key, _, value = line.partition(" ")
            if key == name and value.isdigit():
                return int(value)
    return 0


def _words(path: Path) -> list[str]:
    with contextlib.suppress(OSError):
        return path.read_text().split()
    return []
