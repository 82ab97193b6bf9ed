"""The connection of a rank to its supervisor: JSON lines over a Unix socket."""

import contextlib
import json
import os
import socket
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from trainyard.protocol.json import dumps
from trainyard.protocol.messages import Hello, fields_of

Message = dict[str, Any]

MAX_LINE_BYTES = 4 * 1024 * 1024
_MAX_WAITING_BYTES = 8 * 1024 * 1024
# Long enough to gather the messages of one step into one write, too short to be noticed.
_LINGER_SECONDS = 0.02
# Between two messages of the kind of which only the newest counts.
_NEWEST_SECONDS = 0.5


class ChannelClosed(ConnectionError):
    """The supervisor's end is closed, so the run must not continue."""


class ProtocolError(ValueError):
    """Bytes on the channel that are not one JSON object with a "type" in each line."""


# From the agent, with a listening socket of the sandbox, which a proxy outside of it serves.
PROXY_LISTENER = "proxy_listener"
# To the agent: open the sandbox to people; end it although it was kept. From it: what came of the first, and that the
# sandbox stays after a failure.
OPEN_SESSIONS, RELEASE = "open_sessions", "release"
SESSIONS, KEPT = "sessions", "kept"


def encode(message: Message) -> bytes:
    """The message as one line."""
    return dumps(message).encode() + b"\n"


class LineDecoder:
    """Decodes the bytes of a stream into messages; keeps an incomplete line."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> list[Message]:
        """The messages that `data` completes. After a ProtocolError the stream is useless."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        if len(self._rest) > MAX_LINE_BYTES:
            raise ProtocolError(f"line longer than {MAX_LINE_BYTES} bytes")
        return [_message(line) for line in lines if line.strip()]


def _message(line: bytes) -> Message:
    try:
        message = json.loads(line)
    except ValueError as error:
        raise ProtocolError(f"not JSON: {line[:200]!r}") from error
    if not isinstance(message, dict) or not isinstance(message.get("type"), str):
        raise ProtocolError(f"not an object with a type: {line[:200]!r}")
    return message


@contextlib.contextmanager
def short_address(path: Path | str) -> Iterator[str]:
    """An address for bind() and connect() that means `path` and fits the 108 bytes of sun_path."""
    path = Path(path)
    directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{directory}/{path.name}"
    finally:
        os.close(directory)


def _connect(path: Path | str) -> socket.socket:
    client = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        with short_address(path) as address:
            client.connect(address)
    except OSError:
        client.close()
        raise
    return client


class Channel:
    """A rank's connection to its supervisor; sending does not wait for the other end.

    `on_command(message)` is called on the reader thread for each message from the supervisor and
    must be quick; `on_closed()` once when the supervisor's end is closed without `close()` from
    here. Safe to use from any thread.
    """

    def __init__(
        self,
        path: Path | str,
        *,
        rank: int,
        can_checkpoint: bool,
        dumps: bool = False,
        on_command: Callable[[Message], None],
        on_closed: Callable[[], None] = lambda: None,
    ) -> None:
        self._rank = rank
        self._dumps = dumps
        self._on_command = on_command
        self._on_closed = on_closed
        self._waiting: list[bytes | Message] = []
        self._waiting_bytes = 0
        self._newest: Message | None = None
        self._newest_at = float("-inf")  # when the previous one was sent
        self._writing = False
        self._urgent = False
        self._closed = False
        self._changed = threading.Condition()
        self._socket = _connect(path)
        self.hello(can_checkpoint=can_checkpoint)
        self._threads = [
            threading.Thread(target=target, name=f"trainyard-{name}", daemon=True)
            for name, target in (("writer", self._write), ("reader", self._read))
        ]
        for thread in self._threads:
            thread.start()

    @property
    def closed(self) -> bool:
        return self._closed

    def hello(self, *, can_checkpoint: bool) -> None:
        """Introduce this rank; a later hello on the same connection corrects `can_checkpoint`."""
        hello = Hello(pid=os.getpid(), can_checkpoint=can_checkpoint, dumps=self._dumps)
        self.send(hello.type, **fields_of(hello))

    def send(self, type_: str, **fields: Any) -> None:
        """Queue one message; waits only while 8 MiB are unsent. Raises ChannelClosed."""
        line = encode({"type": type_, "rank": self._rank, **fields})
        self._queue(line, len(line))

    def send_later(self, type_: str, fields: Message, *, size_bytes: int) -> None:
        """As `send`, encoded by the writer's thread: the caller has a step to make.

        `fields` must not change any more and hold nothing but text and numbers; their size is a guess.
        """
        self._queue({"type": type_, "rank": self._rank, **fields}, size_bytes)

    def send_newest(self, type_: str, fields: Message) -> None:
        """Queue a message of which only the newest counts: it goes out at most every half second, and with `release`.

        The writer's thread sends what is held back, so that the last one before a crash arrives, too.
        """
        with self._changed:
            if self._closed:
                raise ChannelClosed("the supervisor has closed the channel")
            held = self._newest is not None
            self._newest = {"type": type_, "rank": self._rank, **fields}
            if not held:
                self._changed.notify_all()

    def release(self) -> None:
        """Put the newest message into the queue now, before what follows."""
        with self._changed:
            self._take_newest()
            self._changed.notify_all()

    def _take_newest(self) -> None:
        if self._newest is not None:
            self._waiting.append(self._newest)
            self._newest, self._newest_at = None, time.monotonic()

    def _queue(self, message: bytes | Message, size_bytes: int) -> None:
        with self._changed:
            if self._waiting_bytes >= _MAX_WAITING_BYTES:
                self._changed.wait_for(lambda: self._closed or self._waiting_bytes < _MAX_WAITING_BYTES)
            if self._closed:
                raise ChannelClosed("the supervisor has closed the channel")
            self._waiting.append(message)
            self._waiting_bytes += size_bytes
            if len(self._waiting) == 1:  # else the writer is awake already
                self._changed.notify_all()

    def flush(self, timeout_seconds: float = 10.0) -> bool:
        """Wait until all queued messages are written to the socket; False after the timeout or when it is closed."""
        with self._changed:
            self._urgent = True
            self._changed.notify_all()
            done = self._changed.wait_for(lambda: self._closed or not (self._waiting or self._writing), timeout_seconds)
            self._urgent = False
            return done and not self._waiting and not self._writing

    def close(self) -> None:
        """Send what is queued and hang up; calling it again does nothing."""
        # First: a supervisor that hangs up after the last message is no error.
        self._on_closed = lambda: None
        self.flush()
        self._hang_up()
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join(timeout=1.0)
        self._socket.close()

    def _write(self) -> None:
        while lines := self._next_lines():
            try:
                self._socket.sendall(b"".join(line if isinstance(line, bytes) else encode(line) for line in lines))
            except OSError:
                self._lost()
            with self._changed:
                self._writing = False
                self._changed.notify_all()

    def _next_lines(self) -> list[bytes | Message]:
        """The next messages to write, after a moment to gather more; empty once closed."""
        with self._changed:
            while not self._waiting and not self._closed:
                due = self._newest_at + _NEWEST_SECONDS - time.monotonic()
                if self._newest is not None and due <= 0:
                    self._take_newest()
                else:
                    self._changed.wait(due if self._newest is not None else None)
            if not self._urgent and not self._closed:
                self._changed.wait_for(lambda: self._urgent or self._closed, _LINGER_SECONDS)
            lines, self._waiting, self._waiting_bytes = self._waiting, [], 0
            self._writing = bool(lines) and not self._closed
            self._changed.notify_all()
            return lines if self._writing else []

    def _read(self) -> None:
        decoder = LineDecoder()
        try:
            while data := self._receive():
                for message in decoder.feed(data):
                    self._on_command(message)
        except Exception:  # noqa: BLE001  (whatever the error: a rank that can't receive commands must not continue)
            print("trainyard: a message of the supervisor could not be handled", file=sys.stderr)  # noqa: T201
            traceback.print_exc()
        finally:
            self._lost()

    def _receive(self) -> bytes:
        try:
            return self._socket.recv(65536)
        except OSError:
            return b""

    def _lost(self) -> None:
        if self._hang_up():
            self._on_closed()

    def _hang_up(self) -> bool:
        """Mark the channel closed; true for the first caller only."""
        with self._changed:
            first, self._closed = not self._closed, True
            self._changed.notify_all()
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        return first
