"""The terminal, or the pipes, of this process as the ends of a command in a job."""

import asyncio
import os
import re
import signal
import termios
import tty
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager

from app.cli.client.interactive.command_session import Input
from app.cli.client.interactive.session_socket import CHUNK_BYTES, SessionError
from config.environment import user_environment

STDIN_FD, STDOUT_FD, STDERR_FD = 0, 1, 2
DEFAULT_SIZE, DEFAULT_TERM = (24, 80), "xterm"
MOST_CELLS = 4096  # of a row or column, as the API has it
_TERM = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,63}")
_LINE_ENDS = b"\r\n"
HANG_UPS = (signal.SIGHUP, signal.SIGTERM)


class Disconnected(SessionError):
    """The user has left the session."""


class Escapes:
    """Takes ``~.`` at the beginning of a line out of what the user types: it ends the session, as in ssh.

    ``~~`` there is one ``~``.
    """

    def __init__(self) -> None:
        self._begins_line = True
        self._holds = False  # a ~ that may be the first half

    def pass_on(self, data: bytes) -> bytes:
        """What the job gets. Raises Disconnected."""
        passed = bytearray()
        for byte in data:
            if self._holds:
                self._holds = False
                if byte == ord("."):
                    raise Disconnected("you left the session with ~.")
                passed += b"~" if byte != ord("~") else b""
            elif self._begins_line and byte == ord("~"):
                self._holds = True
                self._begins_line = False
                continue
            passed.append(byte)
            self._begins_line = byte in _LINE_ENDS
        return bytes(passed)


class StandardStreams:
    """The standard streams of this process; ``reads``: whether the command gets the input."""

    def __init__(self, *, reads: bool) -> None:
        self._reads = reads

    async def feed(self, to: Input) -> None:
        if self._reads:
            async for data in chunks(STDIN_FD):
                await to.write(data)
        await to.end()

    async def write(self, data: bytes, *, is_error: bool) -> None:
        await write_all(STDERR_FD if is_error else STDOUT_FD, data)


class Terminal:
    """The terminal of this process, in raw mode: every key, Ctrl-C too, goes to the job."""

    def __init__(self) -> None:
        self._escapes = Escapes()

    async def feed(self, to: Input) -> None:
        resized = asyncio.Event()
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGWINCH, resized.set)
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._follow_size(to, resized))
                async for data in chunks(STDIN_FD):
                    if passed := self._escapes.pass_on(data):
                        await to.write(passed)
                raise Disconnected("the terminal was closed")
        finally:
            loop.remove_signal_handler(signal.SIGWINCH)

    async def _follow_size(self, to: Input, resized: asyncio.Event) -> None:
        while True:
            await resized.wait()
            resized.clear()
            await to.resize(*size())

    async def write(self, data: bytes, *, is_error: bool) -> None:  # noqa: ARG002 – a terminal has one output
        await write_all(STDOUT_FD, data)


def size() -> tuple[int, int]:
    """(rows, columns); those of an old terminal where this one does not say."""
    try:
        found = os.get_terminal_size(STDOUT_FD)
    except OSError:
        return DEFAULT_SIZE
    return min(found.lines, MOST_CELLS) or DEFAULT_SIZE[0], min(found.columns, MOST_CELLS) or DEFAULT_SIZE[1]


def name_of_terminal() -> str:
    """For TERM in the job."""
    name = user_environment().get("TERM", "")
    return name if _TERM.fullmatch(name) else DEFAULT_TERM


def is_terminal() -> bool:
    """Whether a person sits at input and output."""
    return os.isatty(STDIN_FD) and os.isatty(STDOUT_FD)


@contextmanager
def raw() -> Iterator[None]:
    """The terminal in raw mode; as it was before, whatever ends the block."""
    before = termios.tcgetattr(STDIN_FD)
    try:
        tty.setraw(STDIN_FD, termios.TCSANOW)
        yield
    finally:
        termios.tcsetattr(STDIN_FD, termios.TCSANOW, before)


@contextmanager
def hang_ups_end(task: "asyncio.Task[object]") -> Iterator[None]:
    """Signals that would end this process cancel the task, so that the terminal becomes as it was before."""
    loop = asyncio.get_running_loop()
    for each in HANG_UPS:
        loop.add_signal_handler(each, task.cancel)
    try:
        yield
    finally:
        for each in HANG_UPS:
            loop.remove_signal_handler(each)


async def chunks(fd: int) -> AsyncIterator[bytes]:
    """What is read from the descriptor, until its end. It stays in blocking mode: a shell shares it with us."""
    while True:
        await _readable(fd)
        try:
            data = os.read(fd, CHUNK_BYTES)
        except OSError:  # a terminal that is gone
            return
        if not data:
            return
        yield data


async def _readable(fd: int) -> None:
    loop = asyncio.get_running_loop()
    ready: asyncio.Future[None] = loop.create_future()
    ready.add_done_callback(lambda _: loop.remove_reader(fd))  # or it would be set again
    try:
        loop.add_reader(fd, ready.set_result, None)
    except PermissionError:  # a file, which can always be read
        return
    await ready


async def write_all(fd: int, data: bytes) -> None:
    """In a thread: a reader that is slow must not keep the connection from answering pings."""
    await asyncio.get_running_loop().run_in_executor(None, _write_all, fd, data)


def _write_all(fd: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(fd, rest) :]
