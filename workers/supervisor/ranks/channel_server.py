"""The supervisor's end of the channel: JSON lines from ranks that may be hostile.

A bad line is logged and skipped; a rank can neither stop the supervisor nor exceed a bounded buffer in it.
"""

import contextlib
import json
import logging
import socket
from collections.abc import Callable, Collection
from pathlib import Path

from trainyard.protocol.channel import MAX_LINE_BYTES, Message, encode, short_address
from workers.supervisor.ranks.event_loop import EventLoop

RETRY_ACCEPT_SECONDS = 1.0
MAX_UNSENT_BYTES = 8 << 20
MAX_COMPLAINTS = 20  # a flood of bad lines must not flood the log
READ_BYTES = 1 << 16

log = logging.getLogger(__name__)

Handler = Callable[["ChannelConnection", Message], None]
Complain = Callable[[str], None]


class ChannelConnection:
    """One client; each of its messages goes to the handler."""

    def __init__(self, client: socket.socket, loop: EventLoop, on_message: Handler, complain: Complain) -> None:
        """``client`` is watched by the loop before anything is sent."""
        self.socket = client
        self._loop = loop
        self.is_open = True
        self.can_checkpoint = False
        self.greeted = False
        self.rank: int | None = None
        self._on_message = on_message
        self._complain = complain
        self._rest = bytearray()
        self._skipping = False
        self._unsent = bytearray()

    def receive(self) -> bool:
        """Handle the bytes that arrived; False when the client has hung up."""
        try:
            data = self.socket.recv(READ_BYTES)
        except BlockingIOError:
            return True
        except OSError:
            return False
        *lines, rest = data.split(b"\n")
        for line in lines:
            self._rest += line
            self._complete_line()
        self._rest += rest
        if len(self._rest) > MAX_LINE_BYTES:
            self._skip(f"line longer than {MAX_LINE_BYTES} bytes")
            self._skipping = True
        return bool(data)

    def send(self, message: Message) -> None:
        """Send now, or as soon as the client reads; one that does not loses everything beyond the buffer."""
        waits = bool(self._unsent)
        self._unsent += encode(message)
        if not waits:
            self._send_unsent()
        if len(self._unsent) > MAX_UNSENT_BYTES:
            self._complain(f"rank {self.rank} does not read its commands")
            self._unsent.clear()

    def disregard(self) -> None:
        """Drop what the client still says: its process was replaced."""
        self._on_message = _drop_message

    def hang_up(self, why: str) -> None:
        """Soon the server notices it as if the client had hung up; what is unsent is lost."""
        self._complain(f"the channel of rank {self.rank} is closed: {why}")
        self._unsent.clear()
        with contextlib.suppress(OSError):  # the client has hung up already
            self.socket.shutdown(socket.SHUT_RDWR)

    @property
    def unsent_bytes(self) -> int:
        return len(self._unsent)

    def _send_unsent(self) -> None:
        try:
            while self._unsent:
                del self._unsent[: self.socket.send(self._unsent)]
        except BlockingIOError:
            self._loop.watch_writable(self.socket, self._send_unsent)
        except OSError:  # hung up: detected when reading
            self._unsent.clear()

    def _complete_line(self) -> None:
        line, self._rest = bytes(self._rest), bytearray()
        if self._skipping:
            self._skipping = False
            return
        if line.strip():
            self._take(line)

    def _take(self, line: bytes) -> None:
        try:
            message = json.loads(line)
        except (ValueError, RecursionError):
            self._skip(f"not JSON: {line[:200]!r}")
            return
        if not isinstance(message, dict) or not isinstance(message.get("type"), str):
            self._skip(f"not an object with a type: {line[:200]!r}")
            return
        self._on_message(self, message)

    def _skip(self, reason: str) -> None:
        self._rest.clear()
        self._complain(f"skipped on the channel of rank {self.rank}: {reason}")


class ChannelServer:
    """Listens at the socket of one attempt and serves all its ranks on the supervisor's loop."""

    def __init__(self, path: Path, loop: EventLoop, on_message: Handler, *, max_connections: int = 20) -> None:
        self._loop = loop
        self._on_message = on_message
        self._max_connections = max_connections
        self._complaints = 0
        self._listening = self._closed = False
        self.connections: list[ChannelConnection] = []
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        with contextlib.suppress(FileNotFoundError):
            path.unlink()
        with short_address(path) as address:
            self._listener.bind(address)
        path.chmod(0o600)
        self._listener.listen(128)
        self._listen()

    def broadcast(self, message: Message, *, but_for: Collection[int] = ()) -> None:
        """Send to every client; with ``but_for`` only to those that are known not to be of these ranks."""
        for connection in self.connections:
            if not but_for or (connection.greeted and connection.rank not in but_for):
                connection.send(message)

    def disregard(self, ranks: Collection[int]) -> None:
        """Drop what the present processes of these ranks still say; later ones have connections of their own."""
        for connection in self.connections:
            if connection.rank in ranks:
                connection.disregard()

    def complain(self, what: str) -> None:
        """Log a warning, up to MAX_COMPLAINTS an attempt."""
        self._complaints += 1
        if self._complaints < MAX_COMPLAINTS:
            log.warning("%s", what)
        elif self._complaints == MAX_COMPLAINTS:
            log.warning("no more of this kind is logged for this attempt, the last was: %s", what)

    def close(self) -> None:
        """Close all connections; ranks that still run see the channel closed."""
        self._closed = True
        self._rest_from_listening()
        self._listener.close()
        for connection in list(self.connections):
            self._drop(connection)

    def _accept(self) -> None:
        try:
            client, _ = self._listener.accept()
        except (BlockingIOError, ConnectionAbortedError):
            return
        except OSError as error:
            # Probably out of descriptors. The client still waits, so without a pause the loop would spin.
            self.complain(f"a connection could not be accepted yet: {error}")
            self._rest_from_listening()
            self._loop.call_after(RETRY_ACCEPT_SECONDS, self._listen)
            return
        client.setblocking(False)
        connection = ChannelConnection(client, self._loop, self._on_message, self.complain)
        self.connections.append(connection)
        self._loop.watch(client, lambda: self._serve(connection))
        if len(self.connections) >= self._max_connections:
            self._rest_from_listening()

    def _listen(self) -> None:
        if not self._listening and not self._closed and len(self.connections) < self._max_connections:
            self._loop.watch(self._listener, self._accept)
            self._listening = True

    def _rest_from_listening(self) -> None:
        """While full, further clients wait in the kernel's queue, which is bounded."""
        self._loop.forget(self._listener)
        self._listening = False

    def _serve(self, connection: ChannelConnection) -> None:
        if not connection.receive():
            self._drop(connection)

    def _drop(self, connection: ChannelConnection) -> None:
        self._loop.forget(connection.socket)
        connection.socket.close()
        connection.is_open = False
        if connection in self.connections:
            self.connections.remove(connection)
        self._listen()


def _drop_message(_connection: ChannelConnection, _message: Message) -> None:
    pass


def connections_for(world_size: int) -> int:
    """Number of clients that a channel serves: one for each rank, plus data loaders that use the hooks."""
    return 4 * world_size + 16
