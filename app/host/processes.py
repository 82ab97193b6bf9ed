"""Processes by /proc: identity, attempts, descendants, signals, and prctl options."""

import fcntl
import os
import re
import select
import signal
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from app.host.privacy import hide_from_same_user as hide_from_same_user  # noqa: PLC0414 – re-exported
from app.host.process_options import die_with_parent as die_with_parent  # noqa: PLC0414 – re-exported
from app.host.process_options import prctl

PR_SET_CHILD_SUBREAPER = 36

PROC = Path("/proc")
DEAD = ("Z", "X")
# The control group of an attempt is JOB.ATTEMPT.NODE below one of this name; a job's processes can't leave it.
ATTEMPT_GROUPS = "trainyard"
_ATTEMPT_GROUP = re.compile(rb"/%b/(job-[^/.\n]+\.\d+\.[^/\n]+)" % ATTEMPT_GROUPS.encode())
NODELESS = "node"  # in place of the name, in the group of an attempt that names no node
OF_PEOPLE = b"TRAINYARD_SESSION="  # in the environment of commands that people run in a sandbox


@dataclass(frozen=True)
class ProcessIdentity:
    """Identity of a process, distinct from a later one with the same pid."""

    pid: int
    start_ticks: int
    place: str

    def is_alive(self) -> bool:
        """Whether this very process is alive (a zombie is not)."""
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


def users_of_processes() -> Iterator[int]:
    """Real, effective, saved and file system's users of all processes that have not ended."""
    for name in os.listdir(PROC):  # noqa: PTH208 – names alone
        if name.isdigit() and start_ticks(int(name)) is not None:
            with suppress(OSError):
                status = (PROC / name / "status").read_text(errors="replace")
                line = next((each for each in status.splitlines() if each.startswith("Uid:")), "")
                yield from map(int, line.split()[1:])


@cache
def place() -> str:
    """The scope of pids: boot id and PID namespace.

    The boot id is not enough: containers of one machine share it but not their processes.
    """
    boot_id = (PROC / "sys/kernel/random/boot_id").read_text().strip()
    return f"{boot_id}/{(PROC / 'self/ns/pid').stat().st_ino}"


def is_hidden(other: str) -> bool:
    """Whether processes of that scope may be alive but invisible from here: another container of the same boot."""
    here = place()
    return other != here and other.partition("/")[0] == here.partition("/")[0]


def start_ticks(pid: int) -> int | None:
    """Start time of the process in clock ticks since boot; None if it does not exist or is a zombie.

    A process whose main thread has ended looks like a zombie while other threads are alive; it counts as alive.
    """
    fields = _stat_fields(pid)
    if not fields or (fields[0] in DEAD and not _another_thread_lives(pid)):
        return None
    return int(fields[19])


def state_of(pid: int) -> str:
    """State letter as in ps: R, S, D, T (stopped), Z …; empty if the process does not exist."""
    fields = _stat_fields(pid)
    return fields[0] if fields else ""


def ranks_below(root_pid: int) -> dict[int, int]:
    """Rank → pid of the ranks below the agent: processes with a RANK whose parent has none.

    Processes that ranks have started are not read: they may be many, and slow to read (see ``environment_of``). What
    people run in the sandbox has a rank's environment, too.
    """
    children = _children()
    found: dict[int, int] = {}
    waiting = list(children.get(root_pid, ()))
    while waiting:
        pid = waiting.pop()
        environment = environment_of(pid)
        if any(variable.startswith(OF_PEOPLE) for variable in environment):
            continue
        rank = _rank_of(environment)
        if rank is None:
            waiting += children.get(pid, ())
        else:
            found[rank] = pid
    return found


def parent_of(pid: int) -> int:
    """Pid of the parent; 0 if the process does not exist."""
    fields = _stat_fields(pid)
    return int(fields[1]) if fields else 0


def processes_of_attempt(job_id: str, attempt: int, *, root_pid: int = 0, node: str = "") -> list[int]:
    """Live processes in the control group of this attempt, or with it in their environment, or below ``root_pid``.

    ``node`` excludes processes of another node on this machine, which may run a part of the same attempt. Descendants
    are included because a rank may have changed its environment.
    """
    tree = set(descendants(root_pid)) if root_pid else set()
    others = [pid for pid in _pids() if pid != os.getpid() and (pid in tree or _is_of(pid, job_id, attempt, node))]
    return [pid for pid in others if start_ticks(pid) is not None]


def supervisors_of(job_id: str, attempt: int) -> list[int]:
    """Live supervisor processes of an attempt, by their command line."""
    wanted = [b"workers.supervisor.main", b"--job", job_id.encode(), b"--attempt", str(attempt).encode()]
    ours = [pid for pid in _pids() if not _attempt_group(pid)]  # no supervisor is in a group of ranks
    return [pid for pid in ours if _holds(_command_line(pid), wanted) and start_ticks(pid) is not None]


def descendants(root_pid: int) -> list[int]:
    """All live processes below ``root_pid``."""
    return _below(root_pid, _children())


def trees_of(root_pids: Iterable[int]) -> dict[int, list[int]]:
    """By root: itself and all live processes below it."""
    children = _children()
    return {root: [root, *_below(root, children)] for root in root_pids}


def _below(root_pid: int, children: Mapping[int, Iterable[int]]) -> list[int]:
    found: list[int] = []
    waiting = list(children.get(root_pid, ()))
    while waiting:
        pid = waiting.pop()
        found.append(pid)
        waiting += children.get(pid, ())
    return found


def kill(pids: Iterable[int], number: signal.Signals = signal.SIGKILL) -> None:
    """Send a signal to each process that exists and that we may signal."""
    for pid in pids:
        try:
            os.kill(pid, number)
        except (ProcessLookupError, PermissionError):  # ended, or owned by another user through a setuid program
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
    """SIGKILL every process of the attempt until none is left; False if some are alive after ``seconds``.

    ``known``: processes known to belong to it. One that hangs in its exit has no environment any more.
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
    """Reap ended children, including adopted orphans."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return


def die_with_pipe(reader: int) -> None:
    """Let the kernel SIGKILL this process when the last writer of an empty pipe closes it: F_SETSIG of fcntl(2)."""
    fcntl.fcntl(reader, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(reader, fcntl.F_SETSIG, signal.SIGKILL)
    fcntl.fcntl(reader, fcntl.F_SETFL, fcntl.fcntl(reader, fcntl.F_GETFL) | os.O_ASYNC)
    if select.select([reader], [], [], 0)[0]:  # it was closed before
        os.kill(os.getpid(), signal.SIGKILL)


def block_signal(number: signal.Signals) -> None:
    """Block this signal, also across an exec, until ``unblock_signal``. Main thread only."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {number})


def unblock_signal(number: signal.Signals) -> None:
    """Unblock this signal; a pending one is delivered now. Call before starting children, which inherit the mask."""
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {number})


def adopt_orphans() -> None:
    """Make this process the parent of descendants whose own parent dies."""
    prctl(PR_SET_CHILD_SUBREAPER, 1)


def _pids() -> list[int]:
    return [int(name) for name in os.listdir(PROC) if name.isdigit()]  # noqa: PTH208 – see _read


def _children() -> dict[int, list[int]]:
    """Parent → children, of all processes."""
    children: dict[int, list[int]] = {}
    for pid in _pids():
        children.setdefault(parent_of(pid), []).append(pid)
    return children


def _read(pid: int, name: str) -> bytes:
    """A file of the process in /proc. Raises OSError.

    Without a Path, which costs more than the file: every process of the machine is read, again and again.
    """
    with open(f"{PROC}/{pid}/{name}", "rb", buffering=0) as file:  # noqa: PTH123
        return file.read()


def _stat_fields(pid: int) -> list[str]:
    """Fields of /proc/PID/stat from the state on; empty if the process does not exist."""
    try:
        # A long name may be truncated within a character.
        text = _read(pid, "stat").decode(errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return []
    # The command name may contain spaces and parentheses; the fields after its last parenthesis don't.
    return text.rpartition(")")[2].split()


def _another_thread_lives(pid: int) -> bool:
    try:
        others = [int(entry.name) for entry in (PROC / str(pid) / "task").iterdir() if int(entry.name) != pid]
    except OSError:
        return False
    return any(_stat_fields(tid) and _stat_fields(tid)[0] not in DEAD for tid in others)


def _command_line(pid: int) -> list[bytes]:
    try:
        return _read(pid, "cmdline").split(b"\0")
    except OSError:
        return []


def _holds(words: list[bytes], wanted: list[bytes]) -> bool:
    """Whether ``wanted`` is a contiguous part of ``words``."""
    return wanted[0] in words and any(words[at : at + len(wanted)] == wanted for at in range(len(words)))


def _is_of(pid: int, job_id: str, attempt: int, node: str) -> bool:
    """By the control group of the process; the environment counts where it is in none of an attempt."""
    if group := _attempt_group(pid):
        prefix = f"{job_id}.{attempt}."
        return group.startswith(prefix) and (not node or group.removeprefix(prefix) in (node, NODELESS))
    marks = (f"TRAINYARD_JOB_ID={job_id}".encode(), f"TRAINYARD_ATTEMPT={attempt}".encode())
    return _environment_has(pid, marks, node)


def _attempt_group(pid: int) -> str:
    """JOB.ATTEMPT.NODE of the control group that the process is in; empty if it is in none of an attempt."""
    try:
        found = _ATTEMPT_GROUP.search(_read(pid, "cgroup"))
    except OSError:
        return ""
    return found[1].decode(errors="replace") if found else ""


def _environment_has(pid: int, marks: tuple[bytes, ...], node: str) -> bool:
    environment = environment_of(pid)
    named = [variable for variable in environment if variable.startswith(b"TRAINYARD_NODE=")] if node else []
    return all(mark in environment for mark in marks) and named in ([], [f"TRAINYARD_NODE={node}".encode()])


def _rank_of(environment: list[bytes]) -> int | None:
    """Among all of its attempt: RANK is the number among those of its role, where it has one."""
    found = dict(variable.partition(b"=")[::2] for variable in environment)
    value = found.get(b"TRAINYARD_RANK", found.get(b"RANK", b""))
    return int(value) if value.isdigit() else None


def environment_of(pid: int) -> list[bytes]:
    """The variables that it was started with; none of one that has ended, or that we may not read.

    Readers of this file and of cmdline wait while the process forks.

    A process of a fork bomb may fork for many seconds: do not read it of another attempt's processes.
    """
    try:
        environment = _read(pid, "environ")
        if not environment and state_of(pid) in DEAD:  # the main thread has ended; read it from another thread
            threads = sorted((PROC / str(pid) / "task").iterdir())
            environment = next((found for each in threads if (found := (each / "environ").read_bytes())), b"")
    except OSError:
        return []
    return environment.split(b"\0")
