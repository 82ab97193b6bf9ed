"""The processes of one session: found by their parents, their session of the kernel, and a variable. Standard library
only.
"""

import os
import signal
from collections.abc import Callable
from pathlib import Path

from app.host import processes
from app.host.processes import ProcessIdentity

MARK = "TRAINYARD_SESSION"  # the variable; by it other parts know that a process is none of a rank's
KILL_SECONDS = 5.0  # after SIGHUP
_SESSION_FIELD = 3  # in /proc/PID/stat, behind the state


class ProcessTree:
    """Below a session leader, also what has left it: orphans become children of this process."""

    def __init__(self, leader: int, mark: str) -> None:
        self._leader = leader
        self._mark = f"{MARK}={mark}".encode()
        self._known: set[ProcessIdentity] = set()

    def end(self, call_after: Callable[[float, Callable[[], None]], None]) -> None:
        """SIGHUP to all, then SIGKILL to those that are left."""
        found = self._found()
        processes.kill(found, signal.SIGHUP)
        processes.kill(found, signal.SIGCONT)  # a stopped one would not get it
        if found:
            call_after(KILL_SECONDS, self.kill)

    def kill(self) -> None:
        """SIGKILL, now."""
        self._found()
        processes.kill([each.pid for each in self._known if each.is_alive()])

    def _found(self) -> list[int]:
        ours = [pid for pid in processes.descendants(os.getpid()) if self._is_of_session(pid)]
        for pid in [*ours, *(below for each in ours for below in processes.descendants(each))]:
            try:
                self._known.add(processes.identity_of(pid))
            except ProcessLookupError:  # it has just ended
                continue
        return [each.pid for each in self._known if each.is_alive()]

    def _is_of_session(self, pid: int) -> bool:
        if pid == self._leader or _session_of(pid) == self._leader:
            return True
        # Only of orphans: a process that forks all the time lets readers of its environment wait.
        return processes.parent_of(pid) == os.getpid() and self._mark in _environment(pid)


def _session_of(pid: int) -> int:
    try:
        fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
        return int(fields[_SESSION_FIELD])
    except (OSError, IndexError, ValueError):
        return 0


def _environment(pid: int) -> list[bytes]:
    try:
        return Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return []
