"""Runs python graders in processes of their own, each call under a time limit."""

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from queue import Empty, LifoQueue
from typing import Any, Self

from app.domain.graders.grading import PYTHON_RUNTIME, NoGrade
from workers.trainers.graders import python_program

TIME_LIMIT = 120.0  # seconds of one call, as OpenAI allows
_CHUNK = 64 * 1024
_POLL_SECONDS = 0.01  # between two questions whether a process has ended
# Sets of texts have the same order in each process, so that a resumed run gives the same rewards.
_HASH_SEED = {"PYTHONHASHSEED": "0"}


class PythonGraders:
    """As many processes as calls at a time, up to ``processes``; they start when they are needed. Any thread."""

    def __init__(self, *, processes: int = 1, seconds: float = TIME_LIMIT) -> None:
        self._seconds = seconds
        self._idle: LifoQueue[_Process | None] = LifoQueue()
        for _ in range(processes):
            self._idle.put(None)
        self._started: set[_Process] = set()
        self._closed = False
        self._lock = threading.Lock()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def run(self, source: str, sample: Mapping[str, Any], item: Mapping[str, Any]) -> float:
        """What ``grade(sample, item)`` of the source returns; it may be NaN. Raises NoGrade."""
        process = self._idle.get()
        try:
            if process is None:
                process = self._start()
            return process.grade(source, sample, item)
        finally:
            self._idle.put(process if process is not None and process.lives else None)
            self._forget(process)

    def close(self) -> None:
        """End the processes. Calls at work, which nothing awaits any more, raise NoGrade."""
        with self._lock:
            self._closed = True
            started = list(self._started)
        for process in started:
            process.kill()
        with contextlib.suppress(Empty):
            while True:
                idle = self._idle.get_nowait()
                if idle is not None:
                    idle.end()
        self._idle.put(None)  # for a call that waits still

    def _start(self) -> "_Process":
        with self._lock:
            if self._closed:
                raise NoGrade(PYTHON_RUNTIME, "the run ends")
            process = _Process(self._seconds)
            self._started.add(process)
        return process

    def _forget(self, process: "_Process | None") -> None:
        if process is not None and not process.lives:
            with self._lock:
                self._started.discard(process)
        elif self._closed:
            self.close()


class _Process:
    def __init__(self, seconds: float) -> None:
        self.lives = True
        self._seconds = seconds
        self._known: set[str] = set()
        self._reaping = threading.Lock()
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-s", str(Path(python_program.__file__)), str(seconds)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, **_HASH_SEED},
            bufsize=0,
            start_new_session=True,  # with what a grader starts, to be killed together
        )

    def grade(self, source: str, sample: Mapping[str, Any], item: Mapping[str, Any]) -> float:
        """Raises NoGrade, after which the process may be gone."""
        key = sha256(source.encode(errors="surrogatepass")).hexdigest()
        request = {"key": key, "sample": sample, "item": item, **({} if key in self._known else {"source": source})}
        self._known.add(key)
        try:
            # Times and bytes of a record, which JSON lacks, are texts as in templates.
            answer = self._answer(json.dumps(request, default=str).encode() + b"\n")
        except BaseException:
            self.end()
            raise
        if "error" in answer:
            raise NoGrade(PYTHON_RUNTIME, str(answer["error"]))
        return float(answer["value"])

    def kill(self) -> None:
        """From any thread; the one that has the process ends it."""
        with self._reaping:
            if self._process.returncode is None:  # else its number may be another's
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(self._process.pid, signal.SIGKILL)

    def end(self) -> None:
        self.lives = False
        self.kill()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()
        with self._reaping:
            self._process.wait()

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
            raise self._ended(deadline) from None
        readable = select.poll()
        readable.register(taken, select.POLLIN)
        while not answer.endswith(b"\n"):
            if not readable.poll(max(0, deadline - time.monotonic()) * 1000):
                raise NoGrade(PYTHON_RUNTIME, f"grade took more than {self._seconds:g} seconds")
            read = taken.read(_CHUNK)
            if not read:
                raise self._ended(deadline)
            answer += read
        found: dict[str, Any] = json.loads(answer)
        return found

    def _ended(self, deadline: float) -> NoGrade:
        """Its pipe is closed, which a grader may do without an end. It stays a zombie, whose number is its group's."""
        while time.monotonic() < deadline:
            status = os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            if status is not None:
                code = status.si_status if status.si_code == os.CLD_EXITED else -status.si_status
                return NoGrade(PYTHON_RUNTIME, f"grade ended its process (exit status {code})")
            time.sleep(_POLL_SECONDS)
        return NoGrade(PYTHON_RUNTIME, f"grade took more than {self._seconds:g} seconds")
