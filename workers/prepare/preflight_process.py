"""Starts preflights for a coordinator: forked where a node worker of this machine keeps a fork server, or as programs.

Either way a preflight ends with the coordinator.
"""

import os
import select
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import suppress

from app.host.fork_servers import supervisors_socket
from config.settings import Settings
from workers.fork_server.requests import NoForkServer, ask, connect
from workers.process_environment import process_environment

PREFLIGHT = "workers.prepare.preflight"
FILE_INSPECTION = "workers.prepare.files.inspection"  # starts in a fraction of the time, and inspects files only
GRADING = "workers.prepare.grading.run"  # likewise, and runs Python graders only
COMMAND = (sys.executable, "-m", PREFLIGHT)
STDERR = 2
_PIECE_BYTES = 1 << 16


class PreflightProcess:
    """A running preflight: one thread reads its output and closes it, and any may kill it."""

    def __init__(self, settings: Settings, question: bytes, *, program: str = PREFLIGHT) -> None:
        self._program: subprocess.Popen[bytes] | None = None
        self._reader, writer = os.pipe()
        self._output = bytearray()
        self._closing = threading.Lock()
        # While it is open, a forked preflight lives, which is not a child of this process.
        ends, self._lifeline = os.pipe()
        asked = _file_of(question)
        try:
            try:
                _fork(settings, [asked, writer, STDERR, ends])
            except NoForkServer:
                self._program = _start(settings, program, asked, writer)
        except BaseException:
            self.close()
            raise
        finally:
            for descriptor in (asked, writer, ends):
                os.close(descriptor)

    @property
    def exit_code(self) -> int | None:
        """None while it runs, and of a forked one, which is not a child of this process."""
        return self._program.poll() if self._program is not None else None

    def read(self, seconds: float) -> bytes | None:
        """All of its output once it has ended; None if it has not within so many seconds."""
        until = time.monotonic() + seconds
        poll = select.poll()
        poll.register(self._reader, select.POLLIN)
        while poll.poll(max(0.0, until - time.monotonic()) * 1000):
            piece = os.read(self._reader, _PIECE_BYTES)
            if not piece:
                self._reap(until)
                return bytes(self._output)
            self._output += piece
        return None

    def kill(self) -> None:
        """End it now, if it still runs."""
        if self._program is not None:
            self._program.kill()
        with self._closing:
            lifeline, self._lifeline = self._lifeline, -1
        if lifeline >= 0:
            os.close(lifeline)

    def close(self) -> None:
        """End it, and forget its output."""
        self.kill()
        os.close(self._reader)
        if self._program is not None:
            self._program.wait()

    def _reap(self, until: float) -> None:
        if self._program is not None:
            with suppress(subprocess.TimeoutExpired):
                self._program.wait(max(0.0, until - time.monotonic()))


def _fork(settings: Settings, files: Sequence[int]) -> None:
    path = supervisors_socket(settings.data.dir)
    ask(connect(path), path, {"command": [*COMMAND], "environment": process_environment(settings)}, files)


def _start(settings: Settings, program: str, asked: int, output: int) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", program, "--die-with", str(os.getpid())]
    return subprocess.Popen(command, env=process_environment(settings), stdin=asked, stdout=output)


def _file_of(question: bytes) -> int:
    """A file in memory: command lines are readable by every user of the machine."""
    descriptor = os.memfd_create("question")
    os.write(descriptor, question)
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor
