"""Probes 69 to 76: more processes, memory, files, disk and processor time than the job's limits allow."""

import contextlib
import functools
import os
import resource
import signal
import time
from pathlib import Path

from tests.sandbox.probes.probing import Blocked, Targets, probe, tried

MOST_FILES = 100_000
COUNTING_SECONDS = 6.0  # within which the platform has counted the files of a job several times
BEYOND = 50  # processes, or megabytes, over a limit
SPINNING_SECONDS = 1.0


@probe(69, "start more processes than the limit")
def processes(targets: Targets) -> str:
    wanted = targets.processes + BEYOND
    for number in range(wanted):
        try:
            pid = os.fork()
        except OSError as error:
            raise Blocked(f"at {number} of {wanted}: {error.strerror}") from error
        if not pid:
            signal.pause()
            os._exit(0)
    return f"{wanted}"


@probe(70, "use more memory than the limit")
def memory(targets: Targets) -> str:
    wanted = targets.ram_mb + BEYOND
    pid = os.fork()
    if not pid:
        kept = [b"x" * (10 << 20) for _ in range(wanted // 10)]
        os._exit(0 if kept else 1)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    if code:
        raise Blocked(f"it ended with {code}")
    return f"{wanted} MB"


@probe(71, "open more files than the node allows")
def open_files(targets: Targets) -> str:
    wanted = targets.open_files + 1000
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, wanted))
        return f"a limit of {wanted}"
    opened = 0
    try:
        for _ in range(min(wanted, MOST_FILES)):
            os.open(os.devnull, os.O_RDONLY)
            opened += 1
    except OSError as error:
        raise Blocked(f"at {opened}: {error.strerror}") from error
    if opened <= targets.open_files:
        raise Blocked(f"the limit of {targets.open_files} holds")
    return f"{opened}"


@probe(72, "keep more on the disk than the limit")
def disk(targets: Targets) -> str:
    size = 2 * (targets.storage_mb + BEYOND) << 20
    with Path("much").open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, size)
        time.sleep(targets.patience_seconds)
    return f"{size >> 20} MB for {targets.patience_seconds} s"


@probe(73, "keep more in memory's file systems than the limit")
def memory_files(targets: Targets) -> str:
    wanted = (targets.shm_mb + BEYOND) << 20
    return tried(
        {"/dev/shm": lambda: _filled(Path("/dev/shm/much"), wanted), "/dev": lambda: _filled(Path("/dev/much"), 1)}
    )


def _filled(path: Path, size: int) -> str:
    try:
        with path.open("xb") as file:
            os.posix_fallocate(file.fileno(), 0, size)
        return f"{size} bytes"
    finally:
        with contextlib.suppress(FileNotFoundError):
            path.unlink()


@probe(74, "make very many files")
def inodes(targets: Targets) -> str:
    place = Path("many")
    place.mkdir()
    for number in range(targets.inodes):
        os.close(os.open(place / str(number), os.O_CREAT | os.O_WRONLY))
    time.sleep(min(COUNTING_SECONDS, targets.patience_seconds))
    return f"{targets.inodes}"


@probe(75, "use more processor time than the limit")
def processor_time(targets: Targets) -> str:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    children = [_spinning() for _ in range(2)]
    for pid in children:
        os.waitpid(pid, 0)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    # The kernel gives time in parts of a tenth of a second.
    if used < 2 * targets.cpu_cores * SPINNING_SECONDS:
        raise Blocked(f"{used:.2f} s in {SPINNING_SECONDS} s")
    return f"{used:.2f} s in {SPINNING_SECONDS} s"


def _spinning() -> int:
    pid = os.fork()
    if not pid:
        until = time.monotonic() + SPINNING_SECONDS
        while time.monotonic() < until:
            pass
        os._exit(0)
    return pid


@probe(76, "raise resource limits, or have none for core files")
def resource_limits(targets: Targets) -> str:
    kinds = {name: getattr(resource, f"RLIMIT_{name}") for name in ("CORE", "NOFILE", "NPROC", "MEMLOCK")}
    now = {name: resource.getrlimit(kind) for name, kind in kinds.items()}
    if now["CORE"] != (0, 0):
        return str(now)
    finite = [name for name, (_, hard) in now.items() if hard != resource.RLIM_INFINITY]
    try:
        return tried({f"raise {name}": functools.partial(_raised, kinds[name]) for name in finite})
    except Blocked as blocked:
        raise Blocked(f"{blocked}; {now}") from blocked


def _raised(kind: int) -> str:
    soft, hard = resource.getrlimit(kind)
    try:
        resource.setrlimit(kind, (soft, hard + 1))
    except ValueError as error:  # what Python makes of EPERM
        raise Blocked("EPERM") from error
    return f"{hard + 1}"
