"""Messages between ranks: a header in JSON, and bytes that follow it. Nothing that is received is executed."""

import json
import socket
import struct
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

_SIZES = struct.Struct("!IQ")  # bytes of the header, and of what follows
MOST_OF_A_HEADER = 16 << 20
Buffer = bytes | bytearray | memoryview

# A peer whose machine is gone is noticed after about half a minute, also while it is waited for.
_KEEPALIVE = {socket.TCP_KEEPIDLE: 10, socket.TCP_KEEPINTVL: 5, socket.TCP_KEEPCNT: 4, socket.TCP_USER_TIMEOUT: 30_000}


class WireClosed(ConnectionError):
    """The other side has ended the connection, or sends what is no message."""


class Wire:
    """One end of a connection; used by one thread at a time."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._due: float | None = None
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for option, value in _KEEPALIVE.items():
            connection.setsockopt(socket.IPPROTO_TCP, option, value)

    def limit(self, seconds: float | None) -> None:
        """How long one read or write may take from now on; None: as long as the other side is there."""
        self._due = None
        self._connection.settimeout(seconds)

    def limit_all(self, seconds: float) -> None:
        """How long all that is read and written from now on may take together, until `limit` is called."""
        self._due = time.monotonic() + seconds

    def send(self, header: Mapping[str, Any], buffers: Sequence[Buffer] = ()) -> None:
        """Raises OSError."""
        text = json.dumps(header).encode()
        self._watch_the_time()
        self._connection.sendall(_SIZES.pack(len(text), sum(map(len, buffers))) + text)
        for buffer in buffers:
            self._watch_the_time()
            self._connection.sendall(buffer)

    def receive(self, most: int = MOST_OF_A_HEADER) -> tuple[dict[str, Any], int]:
        """A header of at most ``most`` bytes, and how many bytes follow, to be read next. Raises OSError."""
        length, following = _SIZES.unpack(self.read(_SIZES.size))
        if length > most:
            raise WireClosed(f"a header of {length} bytes; at most {most} are read")
        try:
            header = json.loads(self.read(length))
        except (ValueError, RecursionError) as error:  # the latter: too deep
            raise WireClosed("a header that is no JSON") from error
        if not isinstance(header, dict):
            raise WireClosed("a header that is no object")
        return header, following

    def read(self, size: int) -> bytearray:
        """Exactly so many bytes. Raises OSError."""
        found = bytearray(size)
        self.read_into(memoryview(found))
        return found

    def read_into(self, buffer: memoryview) -> None:
        """Fill the buffer. Raises OSError."""
        place, size = 0, len(buffer)
        while place < size:
            self._watch_the_time()
            count = self._connection.recv_into(buffer[place:])
            if not count:
                raise WireClosed("the other side has closed the connection")
            place += count

    def _watch_the_time(self) -> None:
        if self._due is None:
            return
        left = self._due - time.monotonic()
        if left <= 0:
            raise TimeoutError("the other side has taken too long")
        self._connection.settimeout(left)

    def interrupt(self) -> None:
        """From another thread: what reads or writes raises OSError."""
        with suppress(OSError):  # it is closed already
            self._connection.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._connection.close()
