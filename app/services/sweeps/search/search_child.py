"""The child process that knows the methods of Optuna, cmaes and scipy: one question and one answer at a time.

It has no credentials and no settings, and opens no socket, nor any file but of its libraries (`app.host.computing`). It
ends after a minute without a question, and with the thread that started it.
"""

import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

COMMAND = (sys.executable, "-m", "app.host.computing", "app.search")
# Nothing of this process's environment, which has credentials. One thread, so that sums have one order.
ENVIRONMENT = {
    "PATH": os.defpath,
    "PYTHONPATH": str(Path(__file__).parents[4]),
    "PYTHONSAFEPATH": "1",
    "PYTHONHASHSEED": "0",
    "LANG": "C.UTF-8",
    "OMP_NUM_THREADS": "1",
}
_PIECE_BYTES = 1 << 16


class ChildFailed(Exception):
    """It ended, was silent for too long, or did not answer the question; the message says which."""


class SearchChild:
    """A started child. After ChildFailed it is of no use but to be closed."""

    def __init__(self, command: Sequence[str] = COMMAND) -> None:
        self._process = subprocess.Popen(
            [*command], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=ENVIRONMENT, bufsize=0
        )
        assert self._process.stdin is not None and self._process.stdout is not None  # noqa: S101, PT018 – pipes
        self._stdin, self._stdout = self._process.stdin, self._process.stdout
        os.set_blocking(self._stdin.fileno(), False)  # one that hangs must not hold up its parent
        self._asked = 0

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def is_alive(self) -> bool:
        return self._process.poll() is None

    def ask(self, question: str, *, seconds: float) -> dict[str, Any]:
        """Its answer to a JSON object, which is not empty, within so many seconds. Raises ChildFailed."""
        self._asked += 1
        deadline = time.monotonic() + seconds
        # Put into the text: that of a large sweep has megabytes.
        self._write(f'{{"id": {self._asked}, {question[1:]}\n'.encode(), deadline)
        answer: dict[str, Any] = json.loads(self._read(deadline))
        if answer["id"] != self._asked:
            raise ChildFailed(f"it answered question {answer['id']} in place of {self._asked}")
        return answer

    def close(self) -> None:
        """End it now: it has nothing to save."""
        self._process.kill()
        self._stdin.close()
        self._stdout.close()
        self._process.wait()

    def _write(self, text: bytes, deadline: float) -> None:
        rest = memoryview(text)
        while rest:
            _wait(deadline, writes=self._stdin.fileno())
            try:
                rest = rest[os.write(self._stdin.fileno(), rest) :]
            except BlockingIOError:  # less room than select(2) promises
                continue
            except BrokenPipeError as error:
                raise ChildFailed("it ended") from error

    def _read(self, deadline: float) -> bytes:
        """Its next line."""
        pieces: list[bytes] = []
        while not pieces or not pieces[-1].endswith(b"\n"):
            _wait(deadline, reads=self._stdout.fileno())
            piece = os.read(self._stdout.fileno(), _PIECE_BYTES)
            if not piece:
                raise ChildFailed("it ended without an answer")
            pieces.append(piece)
        return b"".join(pieces)


def _wait(deadline: float, *, reads: int | None = None, writes: int | None = None) -> None:
    poll = select.poll()  # select(2) takes no large descriptors
    if reads is not None:
        poll.register(reads, select.POLLIN)
    if writes is not None:
        poll.register(writes, select.POLLOUT)
    if not poll.poll(max(0.0, deadline - time.monotonic()) * 1000):
        raise ChildFailed("it gave no answer in time")
