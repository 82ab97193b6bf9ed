"""Splices connections of clients that know the attempt's token to a Unix socket in its sandbox: that of an engine,
or of the session server. Standard library only: people wait for its start.
"""

import contextlib
import hmac
import os
import re
import socket
import stat
import time
from collections.abc import Callable

from app.host.pipes import Pipes
from workers.rank.sessions.loop import EpollLoop, Watched
from workers.relay.splice import Splice

GREETING = re.compile(rb"TRAINYARD/1 ([\x21-\x7e]{1,180})\n")
MOST_GREETING_BYTES = 200
GREETING_SECONDS = 5.0
CONNECT_SECONDS = 5.0
RETRY_SECONDS = 0.02
REST_SECONDS = 0.1
MOST_CONNECTIONS = 2048
MOST_STRANGERS = 128  # connections that have not shown the token yet
LOCAL_BYTES = 2 << 20  # that a client on the same machine need not have read
UNREAD_BYTES = 64 << 10  # of a client that is refused
FIRST_BYTES = 4 << 10  # a new connection has room for as much
OK = b"OK\n"
NO_GREETING = "the first line is not TRAINYARD/1 and a token"
# A client whose machine is gone must not keep a connection to the engine forever.
_KEEPALIVE = ((socket.TCP_KEEPIDLE, 30), (socket.TCP_KEEPINTVL, 10), (socket.TCP_KEEPCNT, 3))


class RelayRefused(Exception):
    """The client is not let in; the message is what it is answered."""


class Relay:
    """``directory`` is an open descriptor of the run directory, ``name`` that of a socket in it, at which ``what``
    listens. ``hands_over``: it may pass on a connection to take its place, as the session server does for ports.
    """

    def __init__(self, loop: EpollLoop, token: str, directory: int, name: str, *, what: str, hands_over: bool) -> None:
        self._loop, self._token = loop, token.encode()
        self._directory, self._name, self._what = directory, name, what
        self._first = taken_over if hands_over else None
        self._pipes = Pipes()
        self._strangers: dict[Stranger, None] = {}  # the oldest one first
        self._accepting: list[Watched] = []
        self._open = 0
        self._finishes = False

    def serve(self, listener: socket.socket) -> None:
        """Let clients in, as long as the loop runs; of TCP, or of a Unix socket."""
        listener.setblocking(False)
        accepting = self._loop.watch(listener.fileno())
        accepting.on_readable = lambda: self._accept(listener, accepting)
        accepting.want(reads=True, writes=False)
        self._accepting.append(accepting)

    def finish(self, seconds: float) -> None:
        """Stop the loop when what was said is passed on, after at most that long."""
        self._finishes = True
        for accepting in self._accepting:
            accepting.forget()
        self._stop_if_idle()
        self._loop.call_after(seconds, self._stop)

    def _accept(self, listener: socket.socket, accepting: Watched) -> None:
        try:
            client, _ = listener.accept()
        except OSError:  # it is gone again, or there are no descriptors left: not asked for until some may be
            accepting.want(reads=False, writes=False)
            self._loop.call_after(REST_SECONDS, lambda: self._accept_again(accepting))
            return
        client.setblocking(False)
        if client.family == socket.AF_UNIX:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, LOCAL_BYTES)
        else:
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            client.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            for option, value in _KEEPALIVE:
                client.setsockopt(socket.IPPROTO_TCP, option, value)
        # Of too many silent connections the oldest is closed, so that new ones are still let in.
        if len(self._strangers) >= MOST_STRANGERS:
            next(iter(self._strangers)).close()
        self._strangers[Stranger(self._loop, client, self._heard, self._strangers.pop)] = None

    def _accept_again(self, accepting: Watched) -> None:
        if not self._finishes:
            accepting.want(reads=True, writes=False)

    def _heard(self, client: socket.socket, line: bytes) -> None:
        """What a client has greeted with. Raises RelayRefused, with the same words for every wrong token."""
        greeting = GREETING.fullmatch(line) if len(line) <= MOST_GREETING_BYTES else None
        if greeting is None:
            raise RelayRefused(NO_GREETING)
        if not hmac.compare_digest(greeting[1], self._token):
            raise RelayRefused("the token is not that of this attempt")
        if self._open >= MOST_CONNECTIONS:
            raise RelayRefused(f"more than {MOST_CONNECTIONS} connections are open")
        self._open += 1
        self._connect(client, time.monotonic() + CONNECT_SECONDS)

    def _connect(self, client: socket.socket, until: float) -> None:
        """Unix sockets connect at once, or refuse while the queue of the listener is full."""
        try:
            job = connected(self._directory, self._name)
        except BlockingIOError as error:
            if time.monotonic() < until:
                self._loop.call_after(RETRY_SECONDS, lambda: self._connect(client, until))
            else:
                self._not_connected(client, error)
        except OSError as error:
            self._not_connected(client, error)
        else:
            with contextlib.suppress(OSError):  # a broken one shows it later
                client.send(OK)
            Splice(self._loop, self._pipes, client, job, first=self._first, on_end=self._left)

    def _not_connected(self, client: socket.socket, error: OSError) -> None:
        refuse(client, f"the {self._what} does not listen: {error.strerror or error}")
        self._left()

    def _left(self) -> None:
        self._open -= 1
        self._stop_if_idle()

    def _stop_if_idle(self) -> None:
        if self._finishes and not self._open:
            self._stop()

    def _stop(self) -> None:
        self._loop.stopped = True


class Stranger:
    """A client that has not shown the token yet."""

    def __init__(
        self,
        loop: EpollLoop,
        client: socket.socket,
        on_line: Callable[[socket.socket, bytes], None],
        on_end: Callable[["Stranger"], None],
    ) -> None:
        self._client, self._on_line, self._on_end = client, on_line, on_end
        self._line, self._done = b"", False
        self._watched = loop.watch(client.fileno())
        self._watched.on_readable = self._read
        self._watched.want(reads=True, writes=False)
        loop.call_after(GREETING_SECONDS, self._give_up)

    def close(self) -> None:
        self._leave()
        self._client.close()

    def _read(self) -> None:
        """No more than the line is taken: what follows is spliced."""
        try:
            seen = self._client.recv(MOST_GREETING_BYTES, socket.MSG_PEEK)
            end = seen.find(b"\n") + 1
            self._line += self._client.recv(end or len(seen)) if seen else b""
        except OSError:
            self.close()
            return
        if not end and seen and len(self._line) <= MOST_GREETING_BYTES:
            return
        self._leave()
        try:
            self._on_line(self._client, self._line)
        except RelayRefused as error:
            refuse(self._client, str(error))

    def _give_up(self) -> None:
        if not self._done:
            self._leave()
            refuse(self._client, f"no token came within {GREETING_SECONDS:g} s")

    def _leave(self) -> None:
        self._done = True
        self._watched.forget()
        self._on_end(self)


def refuse(client: socket.socket, message: str) -> None:
    """Say why, and hang up. What has come is read, because a connection is reset, else, and the reason lost."""
    with contextlib.suppress(OSError):
        client.send(f"NO {message}\n".encode())
        client.recv(UNREAD_BYTES)
    client.close()


def connected(directory: int, name: str) -> socket.socket:
    """A connection to a socket that a rank may have put anything in the place of, so links are not followed, and it is
    checked after it was opened. Raises OSError.
    """
    place = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=directory)
    try:
        if not stat.S_ISSOCK(os.fstat(place).st_mode):
            raise OSError(0, "what lies in its place is no socket")
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        try:
            connection.connect(f"/proc/self/fd/{place}")
        except BaseException:
            connection.close()
            raise
        return connection
    finally:
        os.close(place)


def taken_over(client: socket.socket, job: socket.socket) -> socket.socket | None:
    """Pass on the first message of the session server, and take the connection that came with it, if one did.

    It comes out of the sandbox, so it may be anything. Raises OSError.
    """
    data, passed, _, _ = socket.recv_fds(job, FIRST_BYTES, 1, socket.MSG_CMSG_CLOEXEC)
    other = None
    try:
        if passed:
            other = socket.socket(fileno=passed[0])
            if other.family not in (socket.AF_INET, socket.AF_INET6) or other.type != socket.SOCK_STREAM:
                raise OSError(0, "what was handed over is no connection")
            other.setblocking(False)
        if not data or client.send(data) < len(data):
            raise OSError(0, "its first message can't be passed on")
    except BaseException:
        for fd in passed if other is None else ():
            os.close(fd)
        if other is not None:
            other.close()
        raise
    return other
