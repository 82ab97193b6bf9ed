"""Starts a fork server, and starts it again when it has ended; one for all nodes of a data directory."""

import fcntl
import logging
import os
import shutil
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from workers.fork_server.requests import bind

log = logging.getLogger(__name__)

_SEALS = fcntl.F_SEAL_SEAL | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE

RETRY_SECONDS, MOST_RETRY_SECONDS = 60.0, 3600.0  # after a server that failed, twice as long each time


class ForkServerOwner:
    """Call ``keep`` now and then from one thread. The server ends with the process of its owner, however that ends."""

    def __init__(self, path: Path, command: Sequence[str], environment: Mapping[str, str]) -> None:
        self._path, self._command, self._environment = path, command, environment
        self._lock: IO[str] | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._lifeline = -1
        self._pause, self._not_before = RETRY_SECONDS, 0.0

    @property
    def pid(self) -> int | None:
        """The server's pid; None if none was started here."""
        return self._process.pid if self._process is not None else None

    def keep(self) -> None:
        """Start the server unless it runs, here or under another node's owner."""
        if not self._is_locked():
            return
        if self._process is not None:
            code = self._process.poll()
            if code is not None:
                self._forget()
                self._judge(code)
        elif time.monotonic() >= self._not_before:
            self._start()

    def close(self) -> None:
        """End the server; what it has forked continues."""
        if self._process is not None:
            self._process.kill()  # it has nothing to tidy up, and the child that waits ends with it
            self._process.wait()
            self._forget()
            with suppress(FileNotFoundError):
                self._path.unlink()
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def _start(self) -> None:
        self._wait_before_the_next()  # if this one can't be started
        reader, lifeline = os.pipe()
        try:
            with bind(self._path) as bound, sealed_interpreter(self._command[0]) as program:
                descriptors = (bound.fileno(), reader, program)
                self._process = subprocess.Popen(
                    [*self._command, *map(str, descriptors)],
                    executable=f"/proc/self/fd/{program}",
                    env=dict(self._environment),
                    cwd="/",
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    pass_fds=descriptors,
                    start_new_session=True,
                )
        except OSError:
            os.close(lifeline)
            raise
        finally:
            os.close(reader)
        self._lifeline = lifeline

    def _forget(self) -> None:
        os.close(self._lifeline)
        self._process = None

    def _judge(self, code: int) -> None:
        """Start the next one at once after a server that has forked all its children, and later after any other."""
        if code:  # also of one that was killed: the machine may have no memory left
            log.warning("%s ended with %s: its processes start as programs for now", self._command[-1], code)
        else:
            self._pause, self._not_before = RETRY_SECONDS, 0.0

    def _wait_before_the_next(self) -> None:
        self._not_before = time.monotonic() + self._pause
        self._pause = min(2 * self._pause, MOST_RETRY_SECONDS)

    def _is_locked(self) -> bool:
        if self._lock is None:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            lock = self._path.with_suffix(".lock").open("w")
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                lock.close()
                return False
            self._lock = lock
        return True


@contextmanager
def sealed_interpreter(path: str) -> Iterator[int]:
    """A copy of the program in memory, sealed against changes.

    A fork that enters a sandbox keeps its program as /proc/PID/exe. That of the installation would lie on the machine's
    writable file system, where a job that runs as its owner could change its mode: see CVE-2019-5736 of runc.
    """
    descriptor = os.memfd_create("python", os.MFD_ALLOW_SEALING)
    try:
        with open(path, "rb") as source, os.fdopen(os.dup(descriptor), "wb") as copy:  # noqa: PTH123
            shutil.copyfileobj(source, copy)
        fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, _SEALS)
        yield descriptor
    finally:
        os.close(descriptor)
