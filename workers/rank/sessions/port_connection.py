"""Connects to a port of the job, for whom the connection is then handed to. Standard library only."""

import errno
import os
import socket
from collections.abc import Callable

from workers.rank.sessions.loop import EpollLoop, Watched

ADDRESSES = ("127.0.0.1", "::1")
CONNECT_SECONDS = 5.0


class PortUnreachable(Exception):
    """Nothing can be connected to; the message says why. ``final``: nor will it be later."""

    def __init__(self, message: str, *, final: bool = False) -> None:
        super().__init__(message)
        self.final = final


class Connecting:
    """Connects to the first address of the sandbox at which something listens on this port."""

    def __init__(
        self,
        loop: EpollLoop,
        port: int,
        on_connected: Callable[[socket.socket], None],
        on_failed: Callable[[PortUnreachable], None],
    ) -> None:
        self._loop, self._port = loop, port
        self._on_connected, self._on_failed = on_connected, on_failed
        self._addresses = list(ADDRESSES)
        self._socket: socket.socket | None = None
        self._watched: Watched | None = None
        self._last = errno.ECONNREFUSED
        self._number = 0
        self._try_next()

    @property
    def is_done(self) -> bool:
        """Whether it has come to its end, by then or by now."""
        return self._socket is None

    def cancel(self) -> None:
        """The client has hung up: no answer is sent any more."""
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

    def _unreachable(self) -> PortUnreachable:
        if self._last in (errno.ECONNREFUSED, errno.EADDRNOTAVAIL, errno.ENETUNREACH):
            return PortUnreachable(f"nothing listens on port {self._port}")
        return PortUnreachable(f"port {self._port}: {os.strerror(self._last)}")

    def _forget(self) -> None:
        if self._watched is not None:
            self._watched.forget()
            self._watched = None

    def _drop(self) -> None:
        self._forget()
        if self._socket is not None:
            self._socket.close()
            self._socket = None
