"""The supervisor's side of the process that speaks to a tracking service: one request, one answer, both in time."""

import json
import os
import selectors
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from typing import IO, Any

from workers.fetching.child.client import child_environment
from workers.tracking.failures import NotDelivered, ProcessEnded

START_SECONDS = 20.0  # of its interpreter, on a busy machine
_BLOCK, _MOST_BYTES = 1 << 16, 1 << 20


class TrackingChild:
    """``process`` was started with pipes by a thread that outlives it, since the kernel ends it with that thread;
    ``around`` is closed once it is killed. ``refusals`` tells, once it has failed, why it could not
    connect, as far as others than itself know.
    """

    def __init__(
        self, process: "subprocess.Popen[bytes]", around: ExitStack, refusals: Callable[[], Sequence[str]] = tuple
    ) -> None:
        self._process = process
        self._around = around
        self._refusals = refusals
        self._rest = b""

    def ask(self, request: Mapping[str, Any], seconds: float) -> int:
        """The arrival number that the service has reached. Raises NotDelivered."""
        deadline = time.monotonic() + seconds
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None and stdout is not None  # noqa: S101, PT018 – for the type checker: they are pipes
        try:
            stdin.write(json.dumps(request).encode() + b"\n")
            stdin.flush()
            answer = json.loads(self._line(stdout, deadline))
        except OSError as error:
            raise ProcessEnded from error
        if "problem" in answer:
            raise NotDelivered("; ".join((answer["problem"], *self._refusals())), refused=answer["refused"])
        return int(answer["seq"])

    def kill(self) -> None:
        """From any thread: a request that is being answered fails."""
        self._process.kill()

    def close(self) -> None:
        """End the process."""
        self._process.kill()
        self._around.close()  # before its id is free: its process group has the same one
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                _close(pipe)

    def _line(self, pipe: IO[bytes], deadline: float) -> bytes:
        """Raises NotDelivered after the deadline, or at its end."""
        with selectors.DefaultSelector() as selector:
            selector.register(pipe, selectors.EVENT_READ)
            while b"\n" not in self._rest:
                if not selector.select(max(0.0, deadline - time.monotonic())):
                    raise NotDelivered("it does not answer in time")
                read = os.read(pipe.fileno(), _BLOCK)
                if not read or len(self._rest) > _MOST_BYTES:
                    raise ProcessEnded
                self._rest += read
        line, _, self._rest = self._rest.partition(b"\n")
        return line


def plain_child() -> TrackingChild:
    """A process that connects by itself, only where it may. Raises NotDelivered."""
    command = [sys.executable, "-m", "workers.tracking", "--die-with", str(os.getpid())]
    try:
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=child_environment())
    except OSError as error:
        raise NotDelivered(f"no process could be started for it: {error}") from error
    return TrackingChild(process, ExitStack())


def _close(pipe: IO[bytes]) -> None:
    try:
        pipe.close()
    except OSError:  # what was not written yet finds no reader
        return
