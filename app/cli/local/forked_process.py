"""Starts `python -m MODULE …` as a fork of this process, which has imported most of what the module imports."""

import atexit
import contextlib
import os
import runpy
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from app.host.command_line import show_command_line
from app.host.forks import close_descriptors, exit_code_of

POLL_SECONDS = 0.01


@dataclass(frozen=True, kw_only=True)
class PythonStart:
    """The start of a command `python -m MODULE ARGUMENT…`; ``settle`` is called last in the new process."""

    command: Sequence[str]
    environment: Mapping[str, str]
    directory: Path
    output: int
    pass_fds: Sequence[int]
    settle: Callable[[], None]


class ForkedProcess:
    """What ``subprocess.Popen`` offers for a process that was forked."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._code: int | None = None

    def poll(self) -> int | None:
        if self._code is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self._code = os.waitstatus_to_exitcode(status)
        return self._code

    def wait(self, timeout: float | None = None) -> int:
        """The exit code once it has ended. Raises subprocess.TimeoutExpired."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while (code := self.poll()) is None:
            if timeout is not None and deadline is not None and time.monotonic() > deadline:
                raise subprocess.TimeoutExpired(str(self.pid), timeout)
            time.sleep(POLL_SECONDS)
        return code

    def terminate(self) -> None:
        if self.poll() is None:
            os.kill(self.pid, signal.SIGTERM)


def can_fork() -> bool:
    """Whether this process has one thread, because a fork lacks the others but not their locks, and standard streams,
    because a fork replaces their descriptors, which would otherwise be those of other files.
    """
    streams = (sys.stdin, sys.stdout, sys.stderr)
    return len(os.listdir("/proc/self/task")) == 1 and None not in streams  # noqa: PTH208 – names alone


def fork_python(start: PythonStart) -> ForkedProcess:
    """The new process, in a process group of its own; see ``can_fork``."""
    pid = os.fork()
    if pid == 0:
        _become(start)
    with contextlib.suppress(PermissionError, ProcessLookupError):  # it did so itself, and has gone on or ended
        os.setpgid(pid, pid)
    return ForkedProcess(pid)


def _become(start: PythonStart) -> NoReturn:
    """Never returns to what this process was doing when it was forked."""
    status = 1
    try:
        _enter(start)
        status = exit_code_of(lambda: _run(start.command))
        _finish()
    except BaseException:  # noqa: BLE001 – nothing may leave this function
        traceback.print_exc()
    finally:
        os._exit(status)


def _enter(start: PythonStart) -> None:
    """What a start of its own would have given this process; where that can't be had, start it so."""
    os.setpgid(0, 0)
    os.chdir(start.directory)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(start.output, 1)
    os.dup2(start.output, 2)
    for fd in start.pass_fds:
        os.set_inheritable(fd, True)
    close_descriptors(but={0, 1, 2, *start.pass_fds})
    os.environ.clear()
    os.environ.update(start.environment)
    start.settle()
    try:
        show_command_line(start.command, start.environment)
    except OSError:
        os.execve(start.command[0], list(start.command), dict(start.environment))  # noqa: S606
    sys.stdin = open(0, closefd=False)  # noqa: SIM115 – for as long as the process lives
    sys.stdout = open(1, "w", buffering=1, closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", buffering=1, closefd=False, errors="backslashreplace")  # noqa: SIM115


def _run(command: Sequence[str]) -> None:
    """Run the module as `python -m` does."""
    sys.argv = list(command[2:])
    runpy.run_module(command[2], run_name="__main__", alter_sys=True)


def _finish() -> None:
    """End like a program; the interpreter would first return to what was forked."""
    threading._shutdown()  # type: ignore[attr-defined]  # noqa: SLF001
    atexit._run_exitfuncs()  # noqa: SLF001
    sys.stdout.flush()
