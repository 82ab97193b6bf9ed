"""Child processes that end with this one, are restarted when they exit, and have a pid file and a log each."""

import contextlib
import ctypes
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from app.cli.local.forked_process import ForkedProcess, PythonStart, can_fork, fork_python

PR_SET_PDEATHSIG = 1
FIRST_BACKOFF_SECONDS = 0.2
MAX_BACKOFF_SECONDS = 5.0
# A child that ran this long started successfully: the backoff is reset.
HEALTHY_SECONDS = 10.0
LOG_BYTES = 50 * 1024 * 1024
POLL_SECONDS = 0.25

_libc = ctypes.CDLL(None)


@dataclass(frozen=True, kw_only=True)
class ChildSpec:
    """How a child is (re)started; ``niceness`` lowers the priority of background services.

    ``forks``: `python -m …` of ours, first started as a fork of this process, which has imported most of it.
    """

    name: str
    command: Sequence[str]
    environment: Mapping[str, str]
    directory: Path
    pass_fds: tuple[int, ...] = ()
    niceness: int = 0
    forks: bool = False


@dataclass
class _Child:
    spec: ChildSpec
    process: "subprocess.Popen[bytes] | ForkedProcess"
    started: float
    pause: float = FIRST_BACKOFF_SECONDS
    restart_at: float | None = None  # None while it runs


@dataclass
class LocalProcesses:
    """The children of one `trainyard up`; single-threaded, because a child dies with the thread that started it."""

    pid_dir: Path
    log_dir: Path
    say: Callable[[str], None]
    _children: dict[str, _Child] = field(default_factory=dict)

    def start(self, spec: ChildSpec) -> None:
        """Start a child; from now on it is kept running."""
        process = self._spawn(spec, forks=spec.forks and can_fork())
        self._children[spec.name] = _Child(spec, process, time.monotonic())

    def is_running(self, name: str) -> bool:
        child = self._children.get(name)
        return child is not None and child.process.poll() is None

    def keep_running(self) -> float:
        """Restart children whose backoff has passed; returns the seconds until the next call is due."""
        now = time.monotonic()
        for child in self._children.values():
            if child.restart_at is None and (code := child.process.poll()) is not None:
                self._plan_restart(child, code, now)
            if child.restart_at is not None and child.restart_at <= now:
                child.process, child.started, child.restart_at = self._spawn(child.spec), now, None
        due = [child.restart_at - now for child in self._children.values() if child.restart_at is not None]
        return max(0.0, min([*due, POLL_SECONDS]))

    def stop(self, names: Iterable[str], *, seconds: float) -> None:
        """Stop these children together: SIGTERM, and after ``seconds`` SIGKILL to their process groups."""
        stopping = [child for name in names if (child := self._children.pop(name, None)) is not None]
        for child in stopping:
            with contextlib.suppress(ProcessLookupError):
                child.process.terminate()
        deadline = time.monotonic() + seconds
        for child in stopping:
            self._end(child, max(0.0, deadline - time.monotonic()))

    def log_of(self, name: str) -> Path:
        return self.log_dir / f"{name}.log"

    def names(self) -> list[str]:
        return list(self._children)

    def _plan_restart(self, child: _Child, code: int, now: float) -> None:
        if now - child.started >= HEALTHY_SECONDS:
            child.pause = FIRST_BACKOFF_SECONDS
        child.restart_at = now + child.pause
        name, pause = child.spec.name, child.pause
        self.say(f"{name} ended ({_how(code)}); restarting in {pause:g} s – {self.log_of(name)}")
        child.pause = min(child.pause * 2, MAX_BACKOFF_SECONDS)
        _kill_group(child.process.pid)  # descendants must not hold the port or run beside the successor

    def _spawn(self, spec: ChildSpec, *, forks: bool = False) -> "subprocess.Popen[bytes] | ForkedProcess":
        """Start the child; a restart never ``forks``: by now this process has connections, and its code may be old."""
        parent = os.getpid()

        def settle() -> None:
            _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
            if os.getppid() != parent:  # the parent died before prctl
                os._exit(1)
            signal.pthread_sigmask(signal.SIG_SETMASK, ())
            os.nice(spec.niceness)

        log = self.log_of(spec.name)
        _rotate(log)
        with log.open("ab") as output:
            process = _forked(spec, output.fileno(), settle) if forks else _executed(spec, output, settle)
        self._write_pid(spec.name, process.pid)
        return process

    def _end(self, child: _Child, seconds: float) -> None:
        try:
            child.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.say(f"{child.spec.name} did not stop in time and is killed")
        _kill_group(child.process.pid)
        child.process.wait()
        self._pid_file(child.spec.name).unlink(missing_ok=True)

    def _write_pid(self, name: str, pid: int) -> None:
        temporary = self.pid_dir / f".{name}.pid"
        temporary.write_text(f"{pid}\n")
        temporary.rename(self._pid_file(name))

    def _pid_file(self, name: str) -> Path:
        return self.pid_dir / f"{name}.pid"


def _executed(spec: ChildSpec, output: IO[bytes], settle: Callable[[], None]) -> "subprocess.Popen[bytes]":
    return subprocess.Popen(
        spec.command,
        env=spec.environment,
        cwd=spec.directory,
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=subprocess.STDOUT,
        pass_fds=spec.pass_fds,
        # Ctrl-C in the terminal reaches only this process: jobs save a checkpoint before the children end.
        process_group=0,
        preexec_fn=settle,  # noqa: PLW1509 – no threads here, and nothing else sets the death signal
    )


def _forked(spec: ChildSpec, output: int, settle: Callable[[], None]) -> ForkedProcess:
    return fork_python(
        PythonStart(
            command=spec.command,
            environment=spec.environment,
            directory=spec.directory,
            output=output,
            pass_fds=spec.pass_fds,
            settle=settle,
        )
    )


def _kill_group(group: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(group, signal.SIGKILL)


def _how(returncode: int) -> str:
    return f"exit code {returncode}" if returncode >= 0 else signal.Signals(-returncode).name


def _rotate(log: Path) -> None:
    with contextlib.suppress(FileNotFoundError):
        if log.stat().st_size > LOG_BYTES:
            log.rename(log.with_name(log.name + ".1"))
