"""What a test may not leave behind or reach: threads, processes, app contexts, the network beyond this machine."""

import fcntl
import os
import signal
import socket
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import psutil
from flask import has_app_context

# Shutdown is asynchronous: a thread that was asked to stop gets this long.
GRACE_SECONDS = 5.0
# Every process that descends from the tests carries this variable, also when its parent is gone.
MARK = "TESTS_OF_TRAINYARD"
# Library threads that live as long as the process: tqdm's monitor, pyarrow's and grpc's pools.
LASTING_THREADS = ("tqdm_monitor", "TMonitor", "pytest_timeout", "grpc")
# One per process, started by the standard library on first use, ends with it.
LASTING_PROCESSES = ("multiprocessing.resource_tracker", "multiprocessing.forkserver")

T = TypeVar("T")
Process = tuple[int, int]  # pid and start in ticks since boot: a pid alone may be another process by now

# Processes of the previous check: those that do not descend from the tests, and those that ran before the latest test.
_others: set[int] = set()
_elders: set[Process] = set()
# The pid that the kernel had given last when `_elders` were found: while it is the last one, no process has begun.
_latest_pid = b""


def mark_descendants() -> None:
    """Mark every process that the tests start from now on, to distinguish it from all others."""
    os.environ[MARK] = uuid.uuid4().hex


@contextmanager
def no_leaked_threads() -> Iterator[None]:
    before = set(threading.enumerate())
    yield
    leaked = _wait_until_empty(lambda: [t for t in threading.enumerate() if t not in before and _is_ours(t)])
    assert not leaked, f"threads left running: {leaked}"


@contextmanager
def no_leaked_processes(owned: set[int]) -> Iterator[None]:
    """Fails on, and ends, processes that began inside; ``owned`` are pids that a longer fixture ends."""
    before, latest = _running_before()
    yield
    if latest and latest == _read_latest_pid():  # nothing has begun
        return
    leaked = _wait_until_empty(lambda: _new_processes(before, owned))
    said = [_describe(process) for process in leaked]
    for process in leaked:
        _kill(process)
    assert not leaked, f"processes left running (now killed): {said}"


@contextmanager
def no_leaked_app_context() -> Iterator[None]:
    yield
    assert not has_app_context(), "a Flask app context was left open"


@contextmanager
def loopback_only() -> Iterator[None]:
    """Refuses connections of this process to other machines; tests run with the cable pulled."""
    connect, connect_ex = socket.socket.connect, socket.socket.connect_ex

    def guarded_connect(self: socket.socket, address: Any) -> None:
        _refuse_remote(self, address)
        connect(self, address)

    def guarded_connect_ex(self: socket.socket, address: Any) -> int:
        _refuse_remote(self, address)
        return connect_ex(self, address)

    socket.socket.connect = guarded_connect  # type: ignore[method-assign, assignment]
    socket.socket.connect_ex = guarded_connect_ex  # type: ignore[method-assign, assignment]
    try:
        yield
    finally:
        socket.socket.connect = connect  # type: ignore[method-assign]
        socket.socket.connect_ex = connect_ex  # type: ignore[method-assign]


@contextmanager
def memory_kills_alone(run_directory: Path) -> Iterator[None]:
    """The kernel counts OOM kills for the whole machine: one test at a time of those of a run that cause any."""
    with (run_directory / "memory_kills").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


class RemoteConnectionError(OSError):
    """A test tried to leave this machine."""


def _refuse_remote(sock: socket.socket, address: Any) -> None:
    if sock.family in (socket.AF_INET, socket.AF_INET6) and not _is_loopback(str(address[0])):
        raise RemoteConnectionError(f"tests may not connect to {address}")


def _is_loopback(host: str) -> bool:
    return host in ("localhost", "::1", "0.0.0.0", "::") or host.startswith(("127.", "::ffff:127."))


def _is_ours(thread: threading.Thread) -> bool:
    return thread.is_alive() and not any(name in thread.name for name in LASTING_THREADS)


def _running_before() -> tuple[set[Process], bytes]:
    """The descendants of the tests, and the latest pid before they were looked for. Most tests start no process."""
    global _latest_pid  # noqa: PLW0603  # with `_elders`, which it belongs to
    latest = _read_latest_pid()
    if not latest or latest != _latest_pid:
        found = _descendants(_elders)
        _elders.clear()
        _elders.update(found)
        _latest_pid = latest
    return set(_elders), latest


def _read_latest_pid() -> bytes:
    """What proc_loadavg(5) has as its last field, for processes and threads of this container; empty if unknown."""
    return Path("/proc/loadavg").read_bytes().split()[-1].removeprefix(b"0")


def _new_processes(before: set[Process], owned: set[int]) -> list[Process]:
    elders = {pid for pid, _ in before} | owned
    return [process for process in _descendants(before) - before if not _belongs_to(process, elders)]


def _belongs_to(process: Process, elders: set[int]) -> bool:
    # What a server of a longer fixture starts by itself is that server's business.
    try:
        handle = psutil.Process(process[0])
        lineage = {handle.pid, *(parent.pid for parent in handle.parents())}
        command = " ".join(handle.cmdline())
    except psutil.NoSuchProcess:
        return True
    return bool(lineage & (elders - {os.getpid()})) or any(name in command for name in LASTING_PROCESSES)


class _Stat(NamedTuple):
    """What /proc/PID/stat holds of a process."""

    state: str
    parent: int
    started: int


def _descendants(known: set[Process]) -> set[Process]:
    """With those of ``known`` that are still there."""
    present = set(psutil.pids()) - {os.getpid()}
    # What a process was a moment ago it still is: most need no second look.
    _others.intersection_update(present)
    kept = {process for process in known if process[0] in present}
    elders = {pid for pid, _ in kept}
    stats = {pid: stat for pid in present - _others - elders if (stat := _stat(pid)) is not None}
    marked = f"{MARK}={os.environ[MARK]}".encode()
    ancestors = elders | {os.getpid()}
    ours = {pid for pid in stats if _is_below(ancestors, pid, stats) or marked in _environment(pid)}
    _others.update(stats.keys() - ours)
    return kept | {(pid, stats[pid].started) for pid in ours if stats[pid].state not in "ZX"}


def _is_below(ancestors: set[int], pid: int, stats: Mapping[int, _Stat]) -> bool:
    """Also of those that were started with an empty environment."""
    while pid in stats:
        pid = stats[pid].parent
    return pid in ancestors


def _stat(pid: int) -> _Stat | None:
    """None of a process that has ended. One read of a file: psutil takes five, twice for each test and process."""
    try:
        content = Path("/proc", str(pid), "stat").read_bytes()
    except OSError:
        return None
    fields = content[content.rindex(b")") + 2 :].split()  # the name before it may hold anything
    return _Stat(state=fields[0].decode(), parent=int(fields[1]), started=int(fields[19]))


def _environment(pid: int) -> bytes:
    try:
        return Path("/proc", str(pid), "environ").read_bytes()
    except OSError:  # ended meanwhile, or owned by another user
        return b""


def _is_alive(process: Process) -> bool:
    stat = _stat(process[0])
    return stat is not None and stat.started == process[1] and stat.state not in "ZX"


def _describe(process: Process) -> str:
    try:
        return f"{process[0]}: {' '.join(psutil.Process(process[0]).cmdline())}"
    except psutil.NoSuchProcess:
        return f"{process[0]}: ended meanwhile"


def _kill(process: Process) -> None:
    if _is_alive(process):
        with suppress(ProcessLookupError):
            os.kill(process[0], signal.SIGKILL)
    _wait_until_empty(lambda: [process] if _is_alive(process) else [])


def _wait_until_empty(look: Callable[[], list[T]]) -> list[T]:
    deadline = time.monotonic() + GRACE_SECONDS
    while (found := look()) and time.monotonic() < deadline:
        time.sleep(0.02)
    return found
