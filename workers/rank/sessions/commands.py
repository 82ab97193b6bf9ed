"""Starts commands of people as processes of their own, on a pseudo-terminal or on pipes. Standard library only."""

import contextlib
import errno
import fcntl
import os
import shutil
import signal
import struct
import subprocess
import termios
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from workers.rank.rank_process import as_rank

SHELLS = ("bash", "sh")
NOT_EXECUTABLE, NOT_FOUND = 126, 127  # as of shells
_FORWARDED_DEFAULTS = (
    *(signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGCHLD, signal.SIGUSR1, signal.SIGUSR2),
    *(signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU),
)


class NotStarted(Exception):
    """The command could not be started; ``exit_code`` is what a shell would end with."""

    def __init__(self, message: str, exit_code: int) -> None:
        super().__init__(message)
        self.exit_code = exit_code


@dataclass
class RunningCommand:
    """A running command; descriptors do not block. On a terminal input and output are the same one, errors none."""

    pid: int
    stdin: int
    stdout: int
    stderr: int | None
    tty: bool

    def resize(self, rows: int, columns: int) -> None:
        if self.tty and self.stdin >= 0:
            with contextlib.suppress(OSError):
                set_size(self.stdin, rows, columns)


def shell_of(environment: Mapping[str, str]) -> str:
    """$SHELL, bash or sh, the first that is there. Raises NotStarted."""
    path = environment.get("PATH", os.defpath)
    for name in (environment.get("SHELL", ""), *SHELLS):
        if name and (found := shutil.which(name, path=path)):
            return found
    raise NotStarted("the job's sandbox has no shell: neither $SHELL nor bash nor sh", NOT_FOUND)


def start(command: Sequence[str], directory: str, environment: Mapping[str, str]) -> RunningCommand:
    """On pipes. Raises NotStarted."""
    with contextlib.ExitStack() as theirs, contextlib.ExitStack() as ours:
        ends: list[tuple[int, int]] = []
        for number in range(3):
            reader, writer = os.pipe2(os.O_CLOEXEC)
            mine, other = (writer, reader) if number == 0 else (reader, writer)
            ours.callback(os.close, mine)
            theirs.callback(os.close, other)
            os.set_blocking(mine, False)
            ends.append((mine, other))
        pid = _spawn(command, directory, environment, [other for _, other in ends], controls=False)
        ours.pop_all()
    return RunningCommand(pid=pid, stdin=ends[0][0], stdout=ends[1][0], stderr=ends[2][0], tty=False)


def start_on_terminal(
    command: Sequence[str], directory: str, environment: Mapping[str, str], size: tuple[int, int]
) -> RunningCommand:
    """``size``: rows and columns. Raises NotStarted."""
    try:
        master, slave = os.openpty()
    except OSError as error:
        raise NotStarted(f"the sandbox has no terminal to give: {error.strerror}", NOT_EXECUTABLE) from error
    try:
        set_size(master, *size)
        os.set_blocking(master, False)
        pid = _spawn(command, directory, environment, [slave, slave, slave], controls=True)
    except BaseException:
        os.close(master)
        raise
    finally:
        os.close(slave)
    return RunningCommand(pid=pid, stdin=master, stdout=master, stderr=None, tty=True)


def set_size(terminal: int, rows: int, columns: int) -> None:
    """Its foreground processes get SIGWINCH. Raises OSError."""
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))


def _spawn(
    command: Sequence[str], directory: str, environment: Mapping[str, str], streams: Sequence[int], *, controls: bool
) -> int:
    """The pid of a session leader. ``controls``: its input is the terminal that controls it. Raises NotStarted."""
    parent = os.getpid()

    def prepare() -> None:
        as_rank(parent)
        signal.pthread_sigmask(signal.SIG_SETMASK, [])
        for number in _FORWARDED_DEFAULTS:  # a signal that the node worker was started without is not delivered, else
            signal.signal(number, signal.SIG_DFL)
        if controls:
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)

    program = shutil.which(command[0], path=environment.get("PATH", os.defpath)) if "/" not in command[0] else None
    try:
        process = subprocess.Popen(
            list(command),
            executable=program or command[0],
            env=environment,
            cwd=directory if Path(directory).is_dir() else "/",
            stdin=streams[0],
            stdout=streams[1],
            stderr=streams[2],
            start_new_session=True,
            preexec_fn=prepare,  # noqa: PLW1509 – this process has one thread
        )
    except OSError as error:
        found = error.errno != errno.ENOENT
        what = f"{command[0]}: {error.strerror}" if found else f"{command[0]}: the job's sandbox has no such command"
        raise NotStarted(what, NOT_EXECUTABLE if found else NOT_FOUND) from error
    except subprocess.SubprocessError as error:
        raise NotStarted(f"{command[0]}: {error}", NOT_EXECUTABLE) from error
    process.returncode = 0  # collected with all other children
    return process.pid
