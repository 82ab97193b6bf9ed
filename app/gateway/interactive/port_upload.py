"""A large body of a request on its way to the job, which this process does not copy, and the answer beside it.

A stream of tornado's would read the connection by itself while an answer is written to it, so the answer to such a
request is written without one. Its connection ends with it.
"""

import asyncio
import contextlib
import socket
from typing import cast

from tornado.httputil import HTTPConnection, HTTPHeaders, RequestStartLine, ResponseStartLine
from tornado.iostream import IOStream, StreamClosedError

from app.gateway.interactive import client_sockets, port_splice
from app.gateway.interactive.port_splice import DetachedConnection, Moved
from app.host.pipes import SCARCE, Pipes

DRAIN_SECONDS = 5.0  # in which the browser may read an answer that came before the end of its body
WITHOUT_BODY = (204, 304)
_PIECE_BYTES = 1 << 16
_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"


class Answering(HTTPConnection):
    """Writes one answer to a connection of which the body of the request is still read."""

    def __init__(self, connection: socket.socket, method: str) -> None:
        self.connection, self._method = connection.dup(), method
        self._writing: asyncio.Task[None] | None = None  # the latest of them, each of which waits for those before
        self._is_chunked = False
        self.is_closed = False

    def go_on(self) -> None:
        """Ask for the body, as clients want it that send `Expect: 100-continue`."""
        self._write(_CONTINUE)

    def write_headers(
        self, start_line: RequestStartLine | ResponseStartLine, headers: HTTPHeaders, chunk: bytes | None = None
    ) -> "asyncio.Future[None]":
        start = cast("ResponseStartLine", start_line)
        has_body = self._method != "HEAD" and start.code not in WITHOUT_BODY
        self._is_chunked = has_body and "Content-Length" not in headers
        sent = headers.copy()
        sent["Connection"] = "close"
        if self._is_chunked:
            sent["Transfer-Encoding"] = "chunked"
        lines = [f"HTTP/1.1 {start.code} {start.reason}", *(f"{name}: {value}" for name, value in sent.get_all())]
        if any("\r" in line or "\n" in line for line in lines):
            raise ValueError("a header has a line break")
        head = "\r\n".join([*lines, "", ""]).encode("latin-1")
        return self._write(head + self._framed(chunk) if chunk else head)

    def write(self, chunk: bytes) -> "asyncio.Future[None]":
        return self._write(self._framed(chunk))

    def finish(self) -> None:
        """Close it when all is written, and the browser has ended its side or some seconds have passed.

        To close a connection with unread bytes resets it, and the browser may lose an answer that it has not read yet
        (RFC 9112, section 9.6).
        """
        self._writing = asyncio.create_task(self._drained(self._write(b"0\r\n\r\n" if self._is_chunked else b"")))
        self._writing.add_done_callback(lambda _: self.close())

    def close(self) -> None:
        """At once."""
        self.is_closed = True
        if self._writing is None or self._writing.done():
            self.connection.close()
        else:  # the event loop waits for it
            self._writing.add_done_callback(lambda _: self.connection.close())
            self._writing.cancel()

    async def _drained(self, written: "asyncio.Future[None]") -> None:
        with contextlib.suppress(OSError):  # it has left, or the time is over
            await written
            self.connection.shutdown(socket.SHUT_WR)
            async with asyncio.timeout(DRAIN_SECONDS):
                while await asyncio.get_running_loop().sock_recv(self.connection, _PIECE_BYTES):
                    pass

    def _framed(self, chunk: bytes) -> bytes:
        return b"%x\r\n%b\r\n" % (len(chunk), chunk) if self._is_chunked and chunk else chunk

    def _write(self, data: bytes) -> "asyncio.Future[None]":
        """Raises StreamClosedError when it is awaited and the browser has left."""
        if self.is_closed:
            raise StreamClosedError
        if self._writing is None or self._writing.done():
            data = data[self._written(data) :]
        self._writing = asyncio.create_task(self._written_after(self._writing, data))
        self._writing.add_done_callback(lambda done: done.cancelled() or done.exception())
        return self._writing

    def _written(self, data: bytes) -> int:
        """At once: a refusal is followed by a close."""
        try:
            return self.connection.send(data)
        except OSError:  # it takes none now; a broken one shows it again
            return 0

    async def _written_after(self, earlier: "asyncio.Task[None] | None", data: bytes) -> None:
        try:
            if earlier is not None:
                await earlier
            if data:
                await asyncio.get_running_loop().sock_sendall(self.connection, data)
        except OSError as error:  # which a closed stream is, too
            raise StreamClosedError(error) from error


async def pass_on(
    browser: DetachedConnection, job: IOStream, count: int, pipes: Pipes, moved: Moved, waits: Moved
) -> bool:
    """The body, of so many bytes; whether the browser is still there. A job that takes no more says why itself.

    Raises OSError where this process may open nothing more.
    """
    try:
        with job.socket.dup() as connection:
            whole = (
                await port_splice.pass_on(browser, DetachedConnection(connection, b""), count, pipes, moved, waits)
                == count
            )
    except OSError as error:
        if error.errno in SCARCE:
            raise
        whole = False
    return whole or not client_sockets.has_left(browser.connection)
