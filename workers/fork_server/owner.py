"""Starts a fork server, and starts it again when it has ended; one for all nodes of a data directory."""

import fcntl
import logging
import os
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO

from workers.fork_server.requests import bind

log = logging.getLogger(__name__)

END_SECONDS = 5.0
RETRY_SECONDS = 60.0  # after a server that failed


class ForkServerOwner:
    """Call ``keep`` now and then from one thread. The server ends with the process of its owner, however that ends."""

    def __init__(self, path: Path, command: Sequence[str], environment: Mapping[str, str]) -> None:
        self._path, self._command, self._environment = path, command, environment
        self._lock: IO[str] | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._lifeline = -1
        self._failed_at = float("-inf")

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
            if code is None:
                return
            self._forget(code)
        if time.monotonic() - self._failed_at >= RETRY_SECONDS:
            self._start()

    def close(self) -> None:
        """End the server; what it has forked continues."""
        if self._process is not None:
            os.close(self._lifeline)
            try:
                self._process.wait(END_SECONDS)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            self._process = None
            with suppress(FileNotFoundError):
                self._path.unlink()
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def _start(self) -> None:
        reader, self._lifeline = os.pipe()
        with bind(self._path) as bound:
            descriptors = (bound.fileno(), reader)
            self._process = subprocess.Popen(
                [*self._command, *map(str, descriptors)],
                env=dict(self._environment),
                cwd="/",
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=descriptors,
                start_new_session=True,
            )
        os.close(reader)

    def _forget(self, code: int) -> None:
        if code != 0:
            self._failed_at = time.monotonic()
            log.warning("%s ended with %s: its processes start as programs for now", self._command[-1], code)
        os.close(self._lifeline)
        self._process = None

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
