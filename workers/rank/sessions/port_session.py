"""A connection to a port of the job, spliced with the one that asked for it. Standard library only."""

import contextlib
import errno
import os
import socket
from collections.abc import Callable

from workers.rank.sessions.loop import Loop, Watched
from workers.rank.sessions.streams import Broken, Outgoing, read

ADDRESSES = ("127.0.0.1", "::1")
CONNECT_SECONDS = 5.0
SILENT_SECONDS = 120.0  # of one side, after the other has ended


class Unreachable(Exception):
    """Nothing can be connected to; the message says why. ``final``: nor will it be later."""

    def __init__(self, message: str, *, final: bool = False) -> None:
        super().__init__(message)
        self.final = final


class PortSession:
    """``client`` and ``job`` do not block. Each piece is passed on before the next is read."""

    def __init__(self, loop: Loop, client: socket.socket, job: socket.socket, on_end: Callable[[], None]) -> None:
        self._loop, self._sockets, self._on_end = loop, (client, job), on_end
        self._waiting = Outgoing(), Outgoing()  # for the client, for the job
        self._ended = [False, False]  # it sends no more
        self._passed = [False, False]  # and the other one knows
        self._closed = False
        self._moves = 0
        self._ends = tuple(self._watch(side) for side in (0, 1))
        self._update()

    def feed(self, data: bytes) -> None:
        """What the client has sent with its request."""
        self._waiting[1].add(data)
        self._update()

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        for watched, connection in zip(self._ends, self._sockets, strict=True):
            watched.forget()
            connection.close()
        self._on_end()

    def _watch(self, side: int) -> Watched:
        watched = self._loop.watch(self._sockets[side].fileno())
        watched.on_readable = lambda: self._read(side)
        watched.on_writable = lambda: self._write(side)
        return watched

    def _read(self, side: int) -> None:
        data = read(self._sockets[side].fileno())
        if data is None:
            return
        self._moves += 1
        if data:
            self._waiting[1 - side].add(data)
        else:
            self._ended[side] = True
            self._loop.call_after(SILENT_SECONDS, lambda: self._check_silence(self._moves))
        self._update()

    def _write(self, side: int) -> None:
        self._moves += 1
        try:
            self._waiting[side].write(self._sockets[side].fileno())
        except Broken:
            self.close()
            return
        self._update()

    def _check_silence(self, moves: int) -> None:
        """A client that has gone need not have said so: the relay passes on only that nothing more comes."""
        if self._closed:
            return
        if moves == self._moves:
            self.close()
        else:
            seen = self._moves
            self._loop.call_after(SILENT_SECONDS, lambda: self._check_silence(seen))

    def _update(self) -> None:
        if self._closed:
            return
        for side in (0, 1):
            waiting = self._waiting[1 - side]
            if self._ended[side] and not len(waiting) and not self._passed[side]:
                self._passed[side] = True
                with contextlib.suppress(OSError):
                    self._sockets[1 - side].shutdown(socket.SHUT_WR)
        if all(self._passed):
            self.close()
            return
        for side, watched in enumerate(self._ends):
            reads = not self._ended[side] and not self._waiting[1 - side].is_full
            watched.want(reads=reads, writes=len(self._waiting[side]) > 0)


class Connecting:
    """Connects to the first address of the sandbox at which something listens on this port."""

    def __init__(
        self,
        loop: Loop,
        port: int,
        on_connected: Callable[[socket.socket], None],
        on_failed: Callable[[Unreachable], None],
    ) -> None:
        self._loop, self._port = loop, port
        self._on_connected, self._on_failed = on_connected, on_failed
        self._addresses = list(ADDRESSES)
        self._socket: socket.socket | None = None
        self._watched: Watched | None = None
        self._last = errno.ECONNREFUSED
        self._number = 0
        self._try_next()

    def cancel(self) -> None:
        self._drop()
        self._addresses.clear()
        self._number = -1

    def _try_next(self) -> None:
        self._number += 1
        number = self._number
        while self._addresses:
            address = self._addresses.pop(0)
            family = socket.AF_INET6 if ":" in address else socket.AF_INET
            try:
                self._socket = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
                result = self._socket.connect_ex((address, self._port))
            except OSError:  # no IPv6 here
                self._drop()
                continue
            if result in (0, errno.EINPROGRESS):
                self._watched = self._loop.watch(self._socket.fileno())
                self._watched.on_writable = self._finish
                self._watched.want(reads=False, writes=True)
                self._loop.call_after(CONNECT_SECONDS, lambda: self._time_out(number))
                return
            self._keep_first(result)
            self._drop()
        self._on_failed(self._unreachable())

    def _finish(self) -> None:
        connection = self._socket
        if connection is None:
            return
        if error := connection.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
            self._keep_first(error)
            self._drop()
            self._try_next()
            return
        self._number = -1
        self._forget()
        self._socket = None
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._on_connected(connection)

    def _time_out(self, number: int) -> None:
        if number == self._number:
            self._keep_first(errno.ETIMEDOUT)
            self._drop()
            self._try_next()

    def _keep_first(self, error: int) -> None:
        if error != errno.ECONNREFUSED and self._last == errno.ECONNREFUSED:
            self._last = error

    def _unreachable(self) -> Unreachable:
        if self._last in (errno.ECONNREFUSED, errno.EADDRNOTAVAIL, errno.ENETUNREACH):
            return Unreachable(f"nothing listens on port {self._port}")
        return Unreachable(f"port {self._port}: {os.strerror(self._last)}")

    def _forget(self) -> None:
        if self._watched is not None:
            self._watched.forget()
            self._watched = None

    def _drop(self) -> None:
        self._forget()
        if self._socket is not None:
            self._socket.close()
            self._socket = None
