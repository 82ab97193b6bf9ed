"""A gunicorn thread worker that assigns a thread only when the request head is complete, against slow clients.

A client that stalls within a body or does not read the response blocks a thread for a bounded time; idle keep-alive
connections block none.
"""

import contextlib
import errno
import selectors
import socket
import struct
import time
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

from gunicorn.http.body import Body, LengthReader
from gunicorn.http.message import Request
from gunicorn.http.parser import Parser
from gunicorn.sock import BaseSocket
from gunicorn.workers.gthread import TConn, ThreadWorker

HEAD_SECONDS = 10.0
BODY_SECONDS = 30.0  # for the whole body, once a thread reads it
SLOWEST_BYTES_PER_SECOND = 32 * 1024  # of the body of an upload, on average
_LARGE_READ, _LARGEST_READ = 64 * 1024, 1 << 20
UNREAD_SECONDS = 0.5  # how long an unread body is discarded before the connection is closed
SEND_SECONDS = 30.0  # without progress in sending a response
LINGER_SECONDS = 2.0  # for the client to read the rest of the response before closing
MAX_HEAD_BYTES = 65536  # above gunicorn's own limits, so that gunicorn reports the error
_Received = TypeVar("_Received", int, bytes)
_RETRYABLE_ERRNOS = (errno.EAGAIN, errno.ECONNABORTED, errno.EWOULDBLOCK)


class LingeringConnection(TConn):  # type: ignore[misc]  # gunicorn has no types
    """Closes through its worker's poller: gunicorn's own graceful close blocks all other connections."""

    def __init__(self, worker: "HeadFirstWorker", sock: socket.socket, client: object, server: object) -> None:
        super().__init__(worker.cfg, sock, client, server)
        self.head = b""
        self.drained = 0
        self._worker = worker

    def close(self, graceful: bool = False) -> None:  # noqa: FBT001, FBT002  as gunicorn calls it
        if graceful:
            self._worker.linger(self)
        else:
            super().close()


class TimedSocket(socket.socket):
    """A socket with a send timeout, which is reported to gunicorn as a broken pipe."""

    deadline: "BodyDeadline | None" = None

    @classmethod
    def over(cls, accepted: socket.socket, *, send_seconds: float = SEND_SECONDS) -> "TimedSocket":
        """Wrap an accepted socket, which is detached."""
        sock = cls(accepted.family, accepted.type, accepted.proto, fileno=accepted.detach())
        seconds, rest = divmod(send_seconds, 1)
        # The kernel's timeout restarts with each progress, unlike that of `settimeout`.
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", int(seconds), int(rest * 1e6)))
        return sock

    def extend_body_time(self, received_bytes: int) -> None:
        """For a request that takes large bodies, each time that it has received so many bytes of one."""
        if self.deadline is not None:
            self.deadline.extend(received_bytes / SLOWEST_BYTES_PER_SECOND)

    def sendall(self, *arguments: Any) -> None:
        try:
            super().sendall(*arguments)
        except BlockingIOError as error:
            raise BrokenPipeError(errno.EPIPE, "the client does not read the response") from error


class BodyDeadline:
    """Reads for gunicorn's parser until a deadline, after which the body and the connection count as ended."""

    def __init__(self, parser: Parser) -> None:
        self._parser = parser
        self._ends_at = 0.0

    def begin(self, seconds: float) -> None:
        self._ends_at = time.monotonic() + seconds
        self._parser.unreader.chunk = self._chunk
        if isinstance(self._parser.unreader.sock, TimedSocket):
            self._parser.unreader.sock.deadline = self

    def extend(self, seconds: float) -> None:
        """Never to later than BODY_SECONDS from now, so that what came fast allows no long pause afterwards."""
        self._ends_at = min(self._ends_at + seconds, time.monotonic() + BODY_SECONDS)
        self._parser.unreader.mxchunk = _LARGE_READ

    def receive_into(self, buffer: memoryview) -> int:
        """The number of bytes that have come; 0 at the end, and after the deadline."""
        return self._in_time(lambda sock: sock.recv_into(buffer), 0)

    def _chunk(self) -> bytes:
        return self._in_time(lambda sock: sock.recv(self._parser.unreader.mxchunk), b"")

    def _in_time(self, receive: Callable[[socket.socket], _Received], nothing: _Received) -> _Received:
        sock: socket.socket = self._parser.unreader.sock
        before = sock.gettimeout()
        left = max(self._ends_at - time.monotonic(), 0.001)
        sock.settimeout(left if before is None else min(left, before))
        try:
            return receive(sock)
        except TimeoutError:
            if time.monotonic() < self._ends_at:
                raise  # gunicorn's own limit
            if self._parser.mesg:
                self._parser.mesg.force_close()
            return nothing
        finally:
            with contextlib.suppress(OSError):
                sock.settimeout(before)


class LargeReads(Body):  # type: ignore[misc]  # gunicorn has no types
    """Reads what is asked for at once, and not 1 KiB at a time, which costs more than all else that is done with it."""

    def read(self, size: int | None = None) -> bytes:
        missing = self.getsize(size) - self.buf.tell()
        if 0 < missing <= _LARGEST_READ:
            self.buf.write(self.reader.read(missing))
        return bytes(super().read(size))

    def readinto(self, buffer: bytearray | memoryview) -> int:
        """Fills the buffer, unless the body ends; one of known length without any copies between."""
        view = memoryview(buffer)
        if self.buf.tell() or not isinstance(self.reader, LengthReader):
            piece = self.read(len(view))
            view[: len(piece)] = piece
            return len(piece)
        view = view[: self.reader.length]
        filled = 0
        while filled < len(view) and (count := self._receive(view[filled:])):
            filled += count
        self.reader.length -= filled
        return filled

    def _receive(self, view: memoryview) -> int:
        unreader = self.reader.unreader
        deadline = getattr(getattr(unreader, "sock", None), "deadline", None)
        piece = unreader.take_buffered()
        if not piece and deadline is not None:
            return int(deadline.receive_into(view))
        piece = piece or unreader.chunk()
        view[: len(piece)] = piece[: len(view)]
        unreader.unread(piece[len(view) :])
        return min(len(piece), len(view))


class HeadFirstWorker(ThreadWorker):  # type: ignore[misc]  # gunicorn has no types
    """Reads request heads in the polling thread; a head that takes longer than 10 s is dropped.

    For plain HTTP/1.1 connections only: gunicorn itself reads TLS and HTTP/2.
    """

    def __init__(self, *arguments: Any, **more: Any) -> None:
        super().__init__(*arguments, **more)
        self._lingering: deque[LingeringConnection] = deque()

    def accept(self, listener: BaseSocket) -> None:
        if self.cfg.is_ssl or self.cfg.http2_cleartext in ("prior-knowledge", "both"):
            super().accept(listener)
            return
        try:
            accepted, address = listener.accept()
        except OSError as error:
            if error.errno not in _RETRYABLE_ERRNOS:
                raise
            return
        self.nr_conns += 1
        self._await_more(LingeringConnection(self, TimedSocket.over(accepted), address, listener.getsockname()))

    def on_client_socket_readable(self, conn: TConn, client: socket.socket) -> None:
        """Handle the next request of a keep-alive connection."""
        if not hasattr(conn, "head"):
            super().on_client_socket_readable(conn, client)
            return
        self.poller.unregister(client)
        self.keepalived_conns.remove(conn)
        if self._has_head(conn):
            self.enqueue_req(conn)
        else:
            self._await_more(conn)

    def handle(self, conn: TConn) -> object:
        """Handle the request in a pool thread: the parser gets the buffered head and reads the rest itself."""
        if head := getattr(conn, "head", b""):
            conn.head = b""
            conn.init()
            unreader = conn.parser.unreader
            unreader.unread(unreader.take_buffered() + head)
            BodyDeadline(conn.parser).begin(BODY_SECONDS)
        return super().handle(conn)

    def handle_request(self, req: Request, conn: TConn) -> object:
        if hasattr(req.body, "reader"):
            req.body = LargeReads(req.body.reader)
        return super().handle_request(req, conn)

    def _keepalive_after(self, conn: TConn, keepalive: object) -> bool:
        """Whether to keep the connection; the rest of an unread body is discarded only briefly."""
        return bool(keepalive) and bool(conn.parser.finish_body(deadline=time.monotonic() + UNREAD_SECONDS))

    def linger(self, conn: LingeringConnection) -> None:
        """Close in stages (RFC 9112, section 9.6): closing with unread input could discard the response."""
        try:
            conn.sock.setblocking(False)
            conn.sock.shutdown(socket.SHUT_WR)
        except OSError:
            conn.close()
            return
        conn.timeout = time.monotonic() + LINGER_SECONDS
        self.nr_conns += 1
        self._lingering.append(conn)
        self.poller.register(conn.sock, selectors.EVENT_READ, partial(self._on_rest, conn))

    def murder_pending(self) -> None:
        super().murder_pending()
        now = time.monotonic()
        while self._lingering and self._lingering[0].timeout <= now:
            self._end(self._lingering[0])

    def _on_rest(self, conn: LingeringConnection, client: socket.socket) -> None:
        try:
            rest = client.recv(MAX_HEAD_BYTES)
        except BlockingIOError:
            return
        except OSError:
            rest = b""
        conn.drained += len(rest)
        if not rest or conn.drained > MAX_HEAD_BYTES:
            self._end(conn)

    def _end(self, conn: LingeringConnection) -> None:
        self._lingering.remove(conn)
        self.poller.unregister(conn.sock)
        self.nr_conns -= 1
        conn.close()

    def _await_more(self, conn: LingeringConnection) -> None:
        conn.timeout = time.monotonic() + HEAD_SECONDS
        self.pending_conns.append(conn)
        self.poller.register(conn.sock, selectors.EVENT_READ, partial(self._on_more, conn))

    def _on_more(self, conn: LingeringConnection, client: socket.socket) -> None:
        if self._has_head(conn):
            self.poller.unregister(client)
            self.pending_conns.remove(conn)
            conn.data_ready = True
            self.enqueue_req(conn)

    def _has_head(self, conn: LingeringConnection) -> bool:
        """Read available input; also true at end of input or above the limit, which the parser rejects."""
        try:
            piece = conn.sock.recv(MAX_HEAD_BYTES)
        except BlockingIOError:
            return False
        except OSError:
            piece = b""
        conn.head += piece
        return not piece or b"\r\n\r\n" in conn.head or len(conn.head) >= MAX_HEAD_BYTES
