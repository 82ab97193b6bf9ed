"""gunicorn's threads, given a request only when its head has arrived: whoever sends slowly holds up nobody.

Whoever stops in the middle of a body, or does not read what he asked for, holds up a thread for a while only, and
nobody who leaves a connection open after its last answer.
"""

import contextlib
import errno
import selectors
import socket
import struct
import time
from collections import deque
from functools import partial
from typing import Any

from gunicorn.workers.gthread import TConn, ThreadWorker

HEAD_SECONDS = 10.0
BODY_SECONDS = 30.0  # for all of it, once a thread reads it
UNREAD_SECONDS = 0.5  # what comes of a body that nobody wants is thrown away so long; then the connection is closed
SEND_SECONDS = 30.0  # without the other side taking anything of an answer
LINGER_SECONDS = 2.0  # before a connection is closed the other side may take what is left of the answer
LARGEST_HEAD = 65536  # gunicorn refuses less than that; it must see enough to say why
_NOT_NOW = (errno.EAGAIN, errno.ECONNABORTED, errno.EWOULDBLOCK)


class AnsweredConnection(TConn):  # type: ignore[misc]  # gunicorn has no types
    """Its worker sees to it when it is to be closed: gunicorn's own way keeps all others waiting meanwhile."""

    def __init__(self, worker: "HeadFirstWorker", sock: socket.socket, client: Any, server: Any) -> None:
        super().__init__(worker.cfg, sock, client, server)
        self.head = b""
        self.drained = 0
        self._worker = worker

    def close(self, graceful: bool = False) -> None:  # noqa: FBT001, FBT002  as gunicorn calls it
        if graceful:
            self._worker.linger(self)
        else:
            super().close()


class Connection(socket.socket):
    """One whose other side must take what it asked for; gunicorn knows it then as broken."""

    @classmethod
    def over(cls, accepted: socket.socket, *, send_seconds: float = SEND_SECONDS) -> "Connection":
        """Takes the accepted one's place."""
        sock = cls(accepted.family, accepted.type, accepted.proto, fileno=accepted.detach())
        seconds, rest = divmod(send_seconds, 1)
        # The kernel's own limit: it begins anew whenever something was taken, which that of `settimeout` does not.
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", int(seconds), int(rest * 1e6)))
        return sock

    def sendall(self, data: Any, flags: int = 0) -> None:
        try:
            super().sendall(data, flags)
        except BlockingIOError as error:
            raise BrokenPipeError(errno.EPIPE, "the other side takes nothing") from error


class BodyReading:
    """Reads for gunicorn's parser until a moment after which the body counts as ended, and the connection with it."""

    def __init__(self, parser: Any) -> None:
        self._parser = parser
        self._ends_at = 0.0

    def begin(self, seconds: float) -> None:
        self._ends_at = time.monotonic() + seconds
        self._parser.unreader.chunk = self._chunk

    def _chunk(self) -> bytes:
        unreader = self._parser.unreader
        sock, before = unreader.sock, unreader.sock.gettimeout()
        left = max(self._ends_at - time.monotonic(), 0.001)
        sock.settimeout(left if before is None else min(left, before))
        try:
            return bytes(sock.recv(unreader.mxchunk))
        except TimeoutError:
            if time.monotonic() < self._ends_at:
                raise  # gunicorn's own limit
            if self._parser.mesg:
                self._parser.mesg.force_close()
            return b""
        finally:
            with contextlib.suppress(OSError):
                sock.settimeout(before)


class HeadFirstWorker(ThreadWorker):  # type: ignore[misc]  # gunicorn has no types
    """Heads are read by the thread that waits for all connections, as they come; a head of 10 s is none.

    Only for connections that are what they look like: with TLS, or HTTP/2, gunicorn reads by itself.
    """

    def __init__(self, *arguments: Any, **more: Any) -> None:
        super().__init__(*arguments, **more)
        self._lingering: deque[AnsweredConnection] = deque()

    def accept(self, listener: Any) -> None:
        if self.cfg.is_ssl or self.cfg.http2_cleartext in ("prior-knowledge", "both"):
            super().accept(listener)
            return
        try:
            accepted, address = listener.accept()
        except OSError as error:
            if error.errno not in _NOT_NOW:
                raise
            return
        self.nr_conns += 1
        self._await_more(AnsweredConnection(self, Connection.over(accepted), address, listener.getsockname()))

    def on_client_socket_readable(self, conn: Any, client: Any) -> None:
        """The next request of a connection that stayed open."""
        if not hasattr(conn, "head"):
            super().on_client_socket_readable(conn, client)
            return
        self.poller.unregister(client)
        self.keepalived_conns.remove(conn)
        if self._has_head(conn):
            self.enqueue_req(conn)
        else:
            self._await_more(conn)

    def handle(self, conn: Any) -> Any:
        """In a thread of the pool: the parser gets what was read, and reads the rest itself."""
        if head := getattr(conn, "head", b""):
            conn.head = b""
            conn.init()
            unreader = conn.parser.unreader
            unreader.unread(unreader.take_buffered() + head)
            BodyReading(conn.parser).begin(BODY_SECONDS)
        return super().handle(conn)

    def _keepalive_after(self, conn: Any, keepalive: Any) -> bool:
        """Whether the connection goes on; what is left of a body that was not read is not waited for."""
        return bool(keepalive) and bool(conn.parser.finish_body(deadline=time.monotonic() + UNREAD_SECONDS))

    def linger(self, conn: AnsweredConnection) -> None:
        """Close a connection as RFC 9112, section 9.6 says: an answer gets lost when what was sent is left unread."""
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

    def _on_rest(self, conn: AnsweredConnection, client: Any) -> None:
        try:
            rest = client.recv(LARGEST_HEAD)
        except BlockingIOError:
            return
        except OSError:
            rest = b""
        conn.drained += len(rest)
        if not rest or conn.drained > LARGEST_HEAD:
            self._end(conn)

    def _end(self, conn: AnsweredConnection) -> None:
        self._lingering.remove(conn)
        self.poller.unregister(conn.sock)
        self.nr_conns -= 1
        conn.close()

    def _await_more(self, conn: Any) -> None:
        conn.timeout = time.monotonic() + HEAD_SECONDS
        self.pending_conns.append(conn)
        self.poller.register(conn.sock, selectors.EVENT_READ, partial(self._on_more, conn))

    def _on_more(self, conn: Any, client: Any) -> None:
        if self._has_head(conn):
            self.poller.unregister(client)
            self.pending_conns.remove(conn)
            conn.data_ready = True
            self.enqueue_req(conn)

    def _has_head(self, conn: Any) -> bool:
        """Read what is there; also true when nothing more will come, or too much has, which the parser will refuse."""
        try:
            piece = conn.sock.recv(LARGEST_HEAD)
        except BlockingIOError:
            return False
        except OSError:
            piece = b""
        conn.head += piece
        return not piece or b"\r\n\r\n" in conn.head or len(conn.head) >= LARGEST_HEAD
