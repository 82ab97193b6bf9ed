"""What bounds the processes of one installation: their memory and number, what they say, and their end."""

import contextlib
import os
import secrets
import threading
import time
from collections.abc import Iterator
from typing import Self

from app.host.processes import PROC
from workers.attempt_failed import AttemptFailed
from workers.prepare.packages.failures import FIELD
from workers.sandbox.control_groups import ControlGroup, GroupLimits, find_hierarchies

_GIB = 1 << 30
_MACHINE_BYTES = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
MEMORY_BYTES = min(16 * _GIB, max(_GIB, _MACHINE_BYTES // 2))  # of all processes; and of each, without control groups
PROCESSES = 1024  # and threads
LAST_BYTES = 1 << 16
_END_SECONDS = 30.0
_POLL_SECONDS = 0.01


@contextlib.contextmanager
def limited_group() -> Iterator[ControlGroup | None]:
    """A control group for uv and what it starts; None where this machine lets none be made. Raises AttemptFailed."""
    group = None
    with contextlib.suppress(OSError):
        limits = GroupLimits(memory_mb=MEMORY_BYTES >> 20, processes=PROCESSES)
        group = find_hierarchies().make(f"packages-{secrets.token_hex(6)}", limits)
    try:
        yield group
    finally:
        has_ended = group is None or group.remove()
    if not has_ended:
        raise _unending()


class LastOutput:
    """Takes all that processes say to ``file``, and keeps the end of it."""

    def __init__(self) -> None:
        self._reading, self.file = os.pipe()
        self._kept = b""
        self._thread = threading.Thread(target=self._read, name="uv-output", daemon=True)

    def begin(self) -> None:
        """Once they are started: nothing else writes."""
        os.close(self.file)
        self.file = -1
        self._thread.start()

    def text(self) -> str:
        """Once they have ended."""
        self._thread.join(_END_SECONDS)
        return self._kept.decode(errors="replace")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.file >= 0:
            os.close(self.file)
            os.close(self._reading)

    def _read(self) -> None:
        with os.fdopen(self._reading, "rb", buffering=0) as stream:
            while block := stream.read(LAST_BYTES):
                self._kept = (self._kept + block)[-LAST_BYTES:]


def first_in_sandbox(pid: int) -> int | None:
    """The first process of the PID namespace that the process ``pid`` of bubblewrap has made."""
    with contextlib.suppress(OSError, ValueError):
        (first,) = (PROC / f"{pid}/task/{pid}/children").read_text().split()
        return int(first)
    return None


def wait_for_end_of_sandbox(first: int | None) -> None:
    """Wait for the end of a killed sandbox; its first process ends after all others. Raises AttemptFailed."""
    until = time.monotonic() + _END_SECONDS
    while first is not None and _lives(first):
        if time.monotonic() > until:
            raise _unending()
        time.sleep(_POLL_SECONDS)


def _lives(pid: int) -> bool:
    try:
        state = (PROC / f"{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return False
    return state not in "ZX"


def _unending() -> AttemptFailed:
    return AttemptFailed("STORAGE_ERROR", f"{FIELD}: a process of uv does not end")
