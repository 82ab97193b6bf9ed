"""gunicorn's threads, given a request only when its head has arrived: whoever sends slowly holds up nobody."""

import errno
import selectors
import time
from functools import partial
from typing import Any

from gunicorn.workers.gthread import TConn, ThreadWorker

HEAD_SECONDS = 10.0
LARGEST_HEAD = 65536  # gunicorn refuses less than that; it must see enough to say why
_NOT_NOW = (errno.EAGAIN, errno.ECONNABORTED, errno.EWOULDBLOCK)


class HeadFirstWorker(ThreadWorker):  # type: ignore[misc]  # gunicorn has no types
    """Heads are read by the thread that waits for all connections, as they come; a head of 10 s is none.

    Only for connections that are what they look like: with TLS, or HTTP/2, gunicorn reads by itself.
    """

    def accept(self, listener: Any) -> None:
        if self.cfg.is_ssl or self.cfg.http2_cleartext in ("prior-knowledge", "both"):
            super().accept(listener)
            return
        try:
            sock, address = listener.accept()
        except OSError as error:
            if error.errno not in _NOT_NOW:
                raise
            return
        self.nr_conns += 1
        conn = TConn(self.cfg, sock, address, listener.getsockname())
        conn.head = b""
        self._await_more(conn)

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
        return super().handle(conn)

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
