"""One request to an engine over a connection of the pool, and its answer."""

from collections.abc import Awaitable, Mapping
from typing import Protocol

from tornado.http1connection import HTTP1Connection, HTTP1ConnectionParameters
from tornado.httputil import HTTPHeaders, HTTPMessageDelegate, RequestStartLine, ResponseStartLine
from tornado.iostream import StreamClosedError

from app.gateway.pool import Connection

MAX_ANSWER_BYTES = 64 << 20
MAX_HEADER_BYTES = 64 << 10


class Broken(Exception):
    """The connection ended before the answer did."""


class Receiver(Protocol):
    """Gets an answer while it is read; raises nothing."""

    def head(self, status: int, headers: Mapping[str, str]) -> None: ...

    def data(self, chunk: bytes) -> Awaitable[None] | None:
        """A part of the body; reading continues when the result is done."""


class _Delegate(HTTPMessageDelegate):
    def __init__(self, receiver: Receiver) -> None:
        self._receiver = receiver
        self.is_whole = False

    def headers_received(self, start_line: RequestStartLine | ResponseStartLine, headers: HTTPHeaders) -> None:
        if isinstance(start_line, ResponseStartLine) and start_line.code >= 200:
            self._receiver.head(start_line.code, headers)

    def data_received(self, chunk: bytes) -> Awaitable[None] | None:
        return self._receiver.data(chunk)

    def finish(self) -> None:
        self.is_whole = True


async def exchange(
    connection: Connection, path: str, headers: Mapping[str, str], body: bytes, receiver: Receiver
) -> bool:
    """Send the request and read the answer to its end; returns whether the connection may be used again.

    Raises Broken. When it is cancelled, the connection is closed, by which the engine notices.
    """
    delegate = _Delegate(receiver)
    parameters = HTTP1ConnectionParameters(max_body_size=MAX_ANSWER_BYTES, max_header_size=MAX_HEADER_BYTES)
    http = HTTP1Connection(connection.stream, is_client=True, params=parameters)
    is_whole = False
    try:
        sent = HTTPHeaders({**headers, "Host": "engine", "Content-Length": str(len(body))})
        http.write_headers(RequestStartLine("POST", path, "HTTP/1.1"), sent, body)
        http.finish()
        is_open = await http.read_response(delegate)
        is_whole = delegate.is_whole
    except StreamClosedError as error:
        raise Broken(str(error.real_error or "it was closed")) from error
    finally:
        if not is_whole:
            connection.stream.close()
    if not is_whole:
        raise Broken("it was closed within the answer")
    return is_open and not connection.stream.closed()
