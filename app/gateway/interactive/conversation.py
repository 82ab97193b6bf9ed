"""What a session's WebSocket and the session server say to each other, with back-pressure both ways."""

import contextlib
import json
import time
from collections.abc import Awaitable, Callable
from typing import Protocol

from app.gateway.interactive.ends import PORT_CLOSED, PROTOCOL, UNREADABLE, End, command_ended
from app.gateway.interactive.recording import Recording
from app.gateway.interactive.sandbox_connection import SandboxConnection
from trainyard.protocol.interactive import (
    CLOSE,
    MAX_PAYLOAD,
    RESIZE,
    STATUS,
    STDERR,
    STDIN,
    STDOUT,
    FrameDecoder,
    FrameError,
    encode_frame,
)
from trainyard.protocol.session_answers import BadAnswer, read_status

READ_BYTES = 64 << 10
MOST_RESIZE_BYTES = 256
MOST_SIDE = 4096  # rows or columns
LOST = End("the connection to the job's sandbox has broken; if the job still runs, open another session")

Send = Callable[[bytes], Awaitable[None]]  # one binary message; done when the client's connection has taken it


class ProtocolBroken(Exception):
    """The client sent what the protocol does not have; ``end`` says what."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.end = End(reason, PROTOCOL)


class Conversation(Protocol):
    """``active_at``: when something was last sent or received, by the monotonic clock; ``end``: that of its command,
    once it has ended: a client need not wait for more, and its leave is then no reason.
    """

    bytes_in: int
    bytes_out: int
    active_at: float
    end: End | None

    async def take(self, message: bytes) -> None:
        """A message of the client; returns when it was passed on. Raises ProtocolBroken."""

    async def run(self) -> End:
        """Pass on what the sandbox sends, until its end. Raises RecordingEnded."""


class CommandConversation:
    """Frames: of commands and shells."""

    def __init__(self, connection: SandboxConnection, send: Send, recording: Recording | None) -> None:
        self._connection = connection
        self._send = send
        self._recording = recording
        self._input_ended = False
        self.bytes_in = self.bytes_out = 0
        self.active_at = time.monotonic()
        self.end: End | None = None

    async def take(self, message: bytes) -> None:
        if not message:
            raise ProtocolBroken("a message begins with a channel")
        channel, payload = message[0], message[1:]
        if channel not in (STDIN, RESIZE, CLOSE) or len(payload) > MAX_PAYLOAD:
            raise ProtocolBroken(f"channel {channel} with {len(payload)} bytes is nothing that clients send")
        if channel == RESIZE:
            rows, columns = _size(payload)
            payload = json.dumps({"rows": rows, "columns": columns}).encode()
            if self._recording is not None:
                await self._recording.resized(rows, columns)
        elif self._input_ended:
            raise ProtocolBroken("the end of the input was sent already")
        elif channel == CLOSE:
            if payload != bytes([STDIN]):
                raise ProtocolBroken("clients can end channel 0 only")
            self._input_ended = True
        else:
            self.bytes_in += len(payload)
        self.active_at = time.monotonic()
        await _write(self._connection, encode_frame(channel, payload))

    async def run(self) -> End:
        decoder = FrameDecoder()
        try:
            while data := await self._connection.reader.read(READ_BYTES):
                for frame in decoder.feed(data):
                    if frame.channel in (STDOUT, STDERR):
                        await self._output(frame.channel, frame.payload)
                    elif frame.channel == STATUS:
                        return await self._status(frame.payload)
        except (FrameError, OSError):
            return LOST
        return LOST

    async def _output(self, channel: int, payload: bytes) -> None:
        self.bytes_out += len(payload)
        self.active_at = time.monotonic()
        if self._recording is not None:
            await self._recording.add(channel, payload)
        await self._send(bytes([channel]) + payload)
        self.active_at = time.monotonic()

    async def _status(self, payload: bytes) -> End:
        try:
            status = read_status(payload)
        except BadAnswer:
            return UNREADABLE
        self.end = command_ended(status)
        await self._send(bytes([STATUS]) + status.encoded())
        return self.end


class PortConversation:
    """Bytes: of a forwarded connection. An empty message is the end of the input."""

    def __init__(self, connection: SandboxConnection, send: Send) -> None:
        self._connection = connection
        self._send = send
        self._input_ended = False
        self.bytes_in = self.bytes_out = 0
        self.active_at = time.monotonic()
        self.end: End | None = None

    async def take(self, message: bytes) -> None:
        self.active_at = time.monotonic()
        if self._input_ended:
            raise ProtocolBroken("the end of the input was sent already")
        if message:
            self.bytes_in += len(message)
            await _write(self._connection, message)
            return
        self._input_ended = True
        with contextlib.suppress(OSError):
            self._connection.writer.write_eof()

    async def run(self) -> End:
        try:
            while data := await self._connection.reader.read(READ_BYTES):
                self.bytes_out += len(data)
                self.active_at = time.monotonic()
                await self._send(data)
                self.active_at = time.monotonic()
        except OSError:
            return LOST
        return PORT_CLOSED


async def _write(connection: SandboxConnection, data: bytes) -> None:
    """Where the connection is broken, the other direction notices."""
    with contextlib.suppress(OSError):
        connection.writer.write(data)
        await connection.writer.drain()


def _size(payload: bytes) -> tuple[int, int]:
    """Rows and columns. Raises ProtocolBroken."""
    try:
        if len(payload) > MOST_RESIZE_BYTES:
            raise ValueError("it is too long")
        size = json.loads(payload)
        found = size["rows"], size["columns"]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise ProtocolBroken('a size is {"rows": 24, "columns": 80}') from None
    if not all(type(each) is int and 1 <= each <= MOST_SIDE for each in found):
        raise ProtocolBroken(f"rows and columns are whole numbers from 1 to {MOST_SIDE}")
    return found
