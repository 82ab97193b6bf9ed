"""What /proc knows about processes: whose they are, whether they are still the same, and whether they are gone."""

import ctypes
import os
import signal
import time
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from app.host.privacy import hide_from_same_user as hide_from_same_user  # noqa: PLC0414 – part of what this offers

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36

PROC = Path("/proc")
DEAD = ("Z", "X")


@dataclass(frozen=True)
class ProcessIdentity:
    """A process that can't be mistaken for a later one with the same pid."""

    pid: int
    start_ticks: int
    place: str

    def is_alive(self) -> bool:
        """Whether exactly this process still runs (a zombie does not)."""
        return self.place == place() and start_ticks(self.pid) == self.start_ticks


def own_identity() -> ProcessIdentity:
    """The identity of the calling process."""
    return identity_of(os.getpid())


def identity_of(pid: int) -> ProcessIdentity:
    """The identity of a running process; raises ProcessLookupError when there is none."""
    ticks = start_ticks(pid)
    if ticks is None:
        raise ProcessLookupError(f"no process {pid}")
    return ProcessIdentity(pid, ticks, place())


@cache
def place() -> str:
    """Where pids mean what they mean here: this boot of the kernel, and this PID namespace.

    The boot alone would not do: containers of one machine share it, and do not see each other's processes.
    """
    boot_id = (PROC / "sys/kernel/random/boot_id").read_text().strip()
    return f"{boot_id}/{(PROC / 'self/ns/pid').stat().st_ino}"


def is_hidden(other: str) -> bool:
    """Whether what runs at that place may live and can't be seen from here: another container of the same boot."""
    here = place()
    return other != here and other.partition("/")[0] == here.partition("/")[0]


def start_ticks(pid: int) -> int | None:
    """When the process began, in clock ticks since boot; None if it is gone or a zombie.

    A process whose main thread has ended looks like a zombie as long as another thread of it lives.
    """
    fields = _stat_fields(pid)
    if not fields or (fields[0] in DEAD and not _another_thread_lives(pid)):
        return None
    return int(fields[19])


def state_of(pid: int) -> str:
    """One letter as in ps: R, S, D, T (stopped), Z …; empty if the process is gone."""
    fields = _stat_fields(pid)
    return fields[0] if fields else ""


def ranks_below(root_pid: int) -> dict[int, int]:
    """Rank → pid of the ranks that run below the agent's process: they have a RANK, and their parent has none."""
    found = {pid: rank for pid in descendants(root_pid) if (rank := _rank_of(pid)) is not None}
    return {rank: pid for pid, rank in found.items() if parent_of(pid) not in found}


def parent_of(pid: int) -> int:
    """The parent's pid; 0 if the process is gone."""
    fields = _stat_fields(pid)
    return int(fields[1]) if fields else 0


def processes_of_attempt(job_id: str, attempt: int, *, root_pid: int = 0, node: str = "") -> list[int]:
    """Living processes that carry this attempt in their environment or descend from ``root_pid``.

    ``node``: leaves out those of another node on this machine, which may have a part of the same attempt. A rank may
    have changed its environment, therefore the descent counts too.
    """
    marks = (f"TRAINYARD_JOB_ID={job_id}".encode(), f"TRAINYARD_ATTEMPT={attempt}".encode())
    tree = set(descendants(root_pid)) if root_pid else set()
    found = []
    for pid in _pids():
        if pid == os.getpid() or start_ticks(pid) is None:
            continue
        if pid in tree or _environment_has(pid, marks, node):
            found.append(pid)
    return found


def supervisors_of(job_id: str, attempt: int) -> list[int]:
    """Living supervisor processes of an attempt, by their command line."""
    wanted = [b"workers.supervisor.main", b"--job", job_id.encode(), b"--attempt", str(attempt).encode()]
    return [pid for pid in _pids() if _holds(_command_line(pid), wanted) and start_ticks(pid) is not None]


def descendants(root_pid: int) -> list[int]:
    """All living processes below ``root_pid``."""
    children: dict[int, list[int]] = {}
    for pid in _pids():
        children.setdefault(parent_of(pid), []).append(pid)
    found: list[int] = []
    waiting = list(children.get(root_pid, ()))
    while waiting:
        pid = waiting.pop()
        found.append(pid)
        waiting += children.get(pid, ())
    return found


def kill(pids: Iterable[int], number: signal.Signals = signal.SIGKILL) -> None:
    """Send a signal to each process that still exists, and that we may signal."""
    for pid in pids:
        try:
            os.kill(pid, number)
        except (ProcessLookupError, PermissionError):  # gone, or another user's by its setuid program
            continue


def kill_attempt(
    job_id: str,
    attempt: int,
    *,
    root_pid: int = 0,
    node: str = "",
    known: Iterable[ProcessIdentity] = (),
    seconds: float = 5.0,
) -> bool:
    """SIGKILL every process of the attempt until none is left; False if some outlived ``seconds``.

    ``known``: processes that were seen to be of it. One that hangs in its exit has no environment any more.
    """
    deadline = time.monotonic() + seconds
    while pids := {
        *processes_of_attempt(job_id, attempt, root_pid=root_pid, node=node),
        *(each.pid for each in known if each.is_alive()),
    }:
        kill(pids)
        reap_children()
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def reap_children() -> None:
    """Collect children that ended, among them orphans that the kernel gave to this process."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return


def die_with_parent(parent_pid: int) -> None:
    """Have the kernel SIGKILL this process when the thread that forked it ends.

    ``parent_pid`` as the parent saw itself before the fork closes the race with a parent that is dead already.
    """
    prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent_pid:
        os.kill(os.getpid(), signal.SIGKILL)


def hold_back(number: signal.Signals) -> None:
    """From now on this signal waits, also over an exec, until ``let_through``. Main thread only."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {number})


def let_through(number: signal.Signals) -> None:
    """The opposite; what was held back arrives now. Before any child is started: they inherit what is held back."""
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {number})


def adopt_orphans() -> None:
    """Make this process the parent of descendants whose own parent dies."""
    prctl(PR_SET_CHILD_SUBREAPER, 1)


def prctl(option: int, value: int) -> None:
    """Set one option of this process; raises OSError."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(option, ctypes.c_ulong(value), 0, 0, 0) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"prctl {option}: {os.strerror(number)}")


def _pids() -> list[int]:
    return [int(entry.name) for entry in PROC.iterdir() if entry.name.isdigit()]


def _stat_fields(pid: int) -> list[str]:
    """The fields of /proc/PID/stat from the state on; empty if the process is gone."""
    try:
        # A name may be cut within a letter.
        text = (PROC / str(pid) / "stat").read_bytes().decode(errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return []
    # The command name may hold spaces and parentheses; nothing after its last one does.
    return text.rpartition(")")[2].split()


def _another_thread_lives(pid: int) -> bool:
    try:
        others = [int(entry.name) for entry in (PROC / str(pid) / "task").iterdir() if int(entry.name) != pid]
    except OSError:
        return False
    return any(_stat_fields(tid) and _stat_fields(tid)[0] not in DEAD for tid in others)


def _command_line(pid: int) -> list[bytes]:
    try:
        return (PROC / str(pid) / "cmdline").read_bytes().split(b"\0")
    except OSError:
        return []


def _holds(words: list[bytes], wanted: list[bytes]) -> bool:
    """Whether ``wanted`` stands among the words, together and in order."""
    return any(words[start : start + len(wanted)] == wanted for start in range(len(words)))


def _environment_has(pid: int, marks: tuple[bytes, ...], node: str) -> bool:
    environment = _environment(pid)
    named = [variable for variable in environment if variable.startswith(b"TRAINYARD_NODE=")] if node else []
    return all(mark in environment for mark in marks) and named in ([], [f"TRAINYARD_NODE={node}".encode()])


def _rank_of(pid: int) -> int | None:
    for variable in _environment(pid):
        name, _, value = variable.partition(b"=")
        if name == b"RANK" and value.isdigit():
            return int(value)
    return None


def _environment(pid: int) -> list[bytes]:
    try:
        environment = (PROC / str(pid) / "environ").read_bytes()
        if not environment and state_of(pid) in DEAD:  # the main thread has ended, another one may still know
            threads = sorted((PROC / str(pid) / "task").iterdir())
            environment = next((found for each in threads if (found := (each / "environ").read_bytes())), b"")
    except OSError:
        return []
    return environment.split(b"\0")
