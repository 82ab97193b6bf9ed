"""A command of a person and the connection that it is used through: both end together. Standard library only."""

import contextlib
import fcntl
import json
import os
import signal
import socket
import struct
import termios
from collections.abc import Callable
from typing import Any

from trainyard.protocol.interactive import (
    CLOSE,
    RESIZE,
    STATUS,
    STDERR,
    STDIN,
    STDOUT,
    Frame,
    FrameDecoder,
    FrameError,
    encode_frame,
)
from workers.rank.sessions import requests
from workers.rank.sessions.commands import RunningCommand
from workers.rank.sessions.loop import EpollLoop, Watched
from workers.rank.sessions.process_tree import ProcessTree
from workers.rank.sessions.streams import BrokenStream, OutputBuffer, read

END_OF_INPUT = b"\x04"  # what a terminal takes for it
LAST_OUTPUT_SECONDS = 0.05  # a terminal passes on late what an ended process has written
LINGER_SECONDS = 5.0  # for the client to hang up: what it still sends would break the connection, else
UNUSED_SECONDS = 0.1  # until a terminal that no process has open is looked at again


class CommandSession:
    """Made once the command runs. Nothing is read for a buffer that is full, so neither side can make memory grow."""

    def __init__(
        self,
        loop: EpollLoop,
        client: socket.socket,
        started: RunningCommand,
        tree: ProcessTree,
        on_end: Callable[[], None],
    ) -> None:
        self._loop, self._client, self._started, self._tree, self._on_end = loop, client, started, tree, on_end
        self.pid = started.pid
        self._decoder = FrameDecoder()
        self._to_command, self._to_client = OutputBuffer(), OutputBuffer()
        self._input_ends = False
        self._status: dict[str, Any] | None = None  # once the command has ended
        self._said = self._finished = self._closed = self._is_unused = False
        self._left: dict[int, int] = {}  # bytes that are still read of an output, once the command has ended
        self._person = loop.watch(client.fileno())
        self._person.on_readable, self._person.on_writable = self._read_client, self._write_client
        self._person.on_hangup = self.close
        self._outputs = {started.stdout: (loop.watch(started.stdout), STDOUT)}
        if started.stderr is not None:
            self._outputs[started.stderr] = (loop.watch(started.stderr), STDERR)
        for watched, channel in self._outputs.values():
            watched.on_readable = self._reader_of(watched, channel)
        self._input = self._outputs[started.stdin][0] if started.tty else loop.watch(started.stdin)
        self._input.on_writable = self._write_input
        self._update()

    def feed(self, data: bytes) -> None:
        """Bytes of the client's."""
        try:
            for frame in self._decoder.feed(data):
                self._take(frame)
        except (FrameError, requests.BadSessionRequest, ValueError, RecursionError):
            self.close()  # nothing that follows means anything
            return
        self._update()

    def exited(self, status: int) -> None:
        """The command has ended; what it has written is still passed on."""
        code = os.waitstatus_to_exitcode(status)
        name = _signal_name(-code) if code < 0 else None
        self._status = {"exit_code": 128 - code if code < 0 else code, "signal": name, "message": ""}
        self._to_command.drop()
        self._input_ends = self._is_unused = False
        if self._started.tty:
            self._loop.call_after(LAST_OUTPUT_SECONDS, self._count_what_is_left)
        else:
            self._count_what_is_left()
        self._say_end()
        self._update()

    def close(self) -> None:
        """End the command and all that it has started."""
        if self._closed:
            return
        self._closed = True
        self._person.forget()
        self._client.close()
        self._close_outputs()
        self._close_input()
        if not self._finished:
            self._tree.end(self._loop.call_after)
        self._on_end()

    def _finish(self) -> None:
        """All is said."""
        if self._finished:
            return
        self._finished = True
        self._tree.end(self._loop.call_after)
        with contextlib.suppress(OSError):
            self._client.shutdown(socket.SHUT_WR)
        self._loop.call_after(LINGER_SECONDS, self.close)

    def _take(self, frame: Frame) -> None:
        """Raises BadSessionRequest and ValueError."""
        if frame.channel == STDIN:
            if not self._input_ends and self._started.stdin >= 0 and self._status is None:
                self._to_command.add(frame.payload)
        elif frame.channel == RESIZE:
            size = json.loads(frame.payload)
            if not isinstance(size, dict):
                raise requests.BadSessionRequest("the size of a terminal is a JSON object")
            self._started.resize(*requests.size_of(size))
        elif frame.channel == CLOSE and frame.payload == bytes([STDIN]):
            if self._started.tty and not self._input_ends and self._status is None:
                self._to_command.add(END_OF_INPUT)
            self._input_ends = self._input_ends or not self._started.tty
        else:
            raise requests.BadSessionRequest(f"channel {frame.channel}: not one for a client")

    def _update(self) -> None:
        """Ask for what can be dealt with now."""
        if self._closed:
            return
        if self._said and not len(self._to_client):
            self._finish()
        self._person.want(reads=not self._to_command.is_full, writes=len(self._to_client) > 0)
        for watched, _ in list(self._outputs.values()):
            writes = watched is self._input and len(self._to_command) > 0
            watched.want(reads=not self._to_client.is_full and not self._is_unused, writes=writes)
        if self._started.tty or self._started.stdin < 0:
            return
        if self._input_ends and not len(self._to_command):
            self._close_input()
        else:
            self._input.want(reads=False, writes=len(self._to_command) > 0)

    def _read_client(self) -> None:
        data = read(self._client.fileno())
        if data == b"":
            self.close()
        elif data is not None and not self._said:
            self.feed(data)

    def _write_client(self) -> None:
        try:
            self._to_client.write(self._client.fileno())
        except BrokenStream:
            self.close()
            return
        self._update()

    def _write_input(self) -> None:
        try:
            self._to_command.write(self._started.stdin)
        except BrokenStream:  # the command reads no more, which is not its end
            self._to_command.drop()
            if not self._started.tty:
                self._close_input()
        self._update()

    def _reader_of(self, watched: Watched, channel: int) -> Callable[[], None]:
        def read_output() -> None:
            data = read(watched.fd)
            if data:
                self._to_client.add(encode_frame(channel, data))
                if watched.fd in self._left:
                    self._left[watched.fd] -= len(data)
                    self._close_if_empty(watched)
            elif data is not None and self._started.tty and self._status is None:
                self._leave_unused()
            elif data is not None:
                self._close_output(watched)
            self._update()

        return read_output

    def _leave_unused(self) -> None:
        """No process has the terminal open: the command may open it again, or is ending; closing it would kill it."""
        self._is_unused = True
        self._loop.call_after(UNUSED_SECONDS, self._use)

    def _use(self) -> None:
        self._is_unused = False
        self._update()

    def _count_what_is_left(self) -> None:
        """Processes that the command has started may hold its outputs open, and write on: they are not waited for."""
        if self._closed:
            return
        for watched, _ in list(self._outputs.values()):
            self._left[watched.fd] = _unread(watched.fd)
            self._close_if_empty(watched)
        self._update()

    def _close_if_empty(self, watched: Watched) -> None:
        if self._left[watched.fd] <= 0:
            self._close_output(watched)

    def _close_output(self, watched: Watched) -> None:
        if self._outputs.pop(watched.fd, None) is None:
            return
        watched.forget()
        os.close(watched.fd)
        if self._started.tty:
            self._started.stdin = -1
        self._say_end()

    def _say_end(self) -> None:
        """The status is the last frame: behind all output."""
        if not self._outputs and self._status is not None and not self._said:
            self._said = True
            self._to_client.add(encode_frame(STATUS, json.dumps(self._status).encode()))

    def _close_outputs(self) -> None:
        for watched, _ in list(self._outputs.values()):
            self._close_output(watched)

    def _close_input(self) -> None:
        if self._started.stdin >= 0 and not self._started.tty:
            self._input.forget()
            os.close(self._started.stdin)
            self._started.stdin = -1


def _unread(fd: int) -> int:
    with contextlib.suppress(OSError):
        return int(struct.unpack("i", fcntl.ioctl(fd, termios.FIONREAD, struct.pack("i", 0)))[0])
    return 0


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"SIG{number}"
