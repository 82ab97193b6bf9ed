"""Runs python graders in processes of their own, each call under a time limit."""

import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from queue import LifoQueue
from typing import Any, Self

from app.domain.graders.grading import PYTHON_RUNTIME, NoGrade
from workers.trainers.graders import python_program

TIME_LIMIT = 120.0  # seconds of one call, as OpenAI allows
_CHUNK = 64 * 1024
# Sets of texts have the same order in each process, so that a resumed run gives the same rewards.
_HASH_SEED = {"PYTHONHASHSEED": "0"}


class PythonGraders:
    """As many processes as calls at a time, up to ``processes``; they start when they are needed. Any thread."""

    def __init__(self, *, processes: int = 1, seconds: float = TIME_LIMIT) -> None:
        self._seconds = seconds
        self._count = processes
        self._idle: LifoQueue[_Process | None] = LifoQueue()
        for _ in range(processes):
            self._idle.put(None)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def run(self, source: str, sample: Mapping[str, Any], item: Mapping[str, Any]) -> float:
        """What ``grade(sample, item)`` of the source returns; it may be NaN. Raises NoGrade."""
        process = self._idle.get()
        try:
            if process is None:
                process = _Process(self._seconds)
            return process.grade(source, sample, item)
        finally:
            self._idle.put(process if process is not None and process.lives else None)

    def close(self) -> None:
        """End the processes; no call may be at work."""
        for process in [self._idle.get() for _ in range(self._count)]:
            if process is not None:
                process.end()
            self._idle.put(None)


class _Process:
    def __init__(self, seconds: float) -> None:
        self.lives = True
        self._seconds = seconds
        self._known: set[str] = set()
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-s", str(Path(python_program.__file__)), str(seconds)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, **_HASH_SEED},
            bufsize=0,
        )

    def grade(self, source: str, sample: Mapping[str, Any], item: Mapping[str, Any]) -> float:
        """Raises NoGrade, after which the process may be gone."""
        key = sha256(source.encode(errors="surrogatepass")).hexdigest()
        request = {"key": key, "sample": sample, "item": item, **({} if key in self._known else {"source": source})}
        self._known.add(key)
        try:
            answer = self._answer(json.dumps(request).encode() + b"\n")
        except BaseException:
            self.end()
            raise
        if "error" in answer:
            raise NoGrade(PYTHON_RUNTIME, str(answer["error"]))
        return float(answer["value"])

    def end(self) -> None:
        self.lives = False
        self._process.kill()
        self._process.communicate()

    def _answer(self, request: bytes) -> dict[str, Any]:
        given, taken = self._process.stdin, self._process.stdout
        if given is None or taken is None:
            raise RuntimeError("a process without pipes")
        deadline = time.monotonic() + self._seconds
        answer = b""
        try:
            written = memoryview(request)
            while written:
                written = written[given.write(written) or 0 :]
        except BrokenPipeError:
            raise self._ended() from None
        readable = select.poll()
        readable.register(taken, select.POLLIN)
        while not answer.endswith(b"\n"):
            if not readable.poll(max(0, deadline - time.monotonic()) * 1000):
                raise NoGrade(PYTHON_RUNTIME, f"grade took more than {self._seconds:g} seconds")
            read = taken.read(_CHUNK)
            if not read:
                raise self._ended()
            answer += read
        found: dict[str, Any] = json.loads(answer)
        return found

    def _ended(self) -> NoGrade:
        status = self._process.wait()
        return NoGrade(PYTHON_RUNTIME, f"grade ended its process (exit status {status})")
