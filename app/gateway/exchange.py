"""One request to an engine over a connection of the pool, and its answer."""

import asyncio
from collections.abc import Awaitable, Mapping
from typing import Protocol

from tornado.http1connection import HTTP1Connection, HTTP1ConnectionParameters
from tornado.httputil import HTTPHeaders, HTTPInputError, HTTPMessageDelegate, RequestStartLine, ResponseStartLine
from tornado.iostream import StreamClosedError

from app.domain.errors import InvalidRequest
from app.gateway.chunks import BadChunk, Chunks
from app.gateway.pool import PooledConnection

MAX_ANSWER_BYTES = 64 << 20
MAX_HEADER_BYTES = 64 << 10
READ_BYTES = 64 << 10  # at a time
UNLIMITED_BYTES = 1 << 40  # the delegate limits answers, so that it can say so


class BrokenExchange(Exception):
    """The connection ended before the answer did."""


class AnswerTooLarge(InvalidRequest):
    """No replica can answer it: another attempt would end the same way."""


class Receiver(Protocol):
    """Gets an answer while it is read."""

    def head(self, status: int, headers: Mapping[str, str]) -> None: ...

    def data(self, chunk: bytes) -> Awaitable[None] | None:
        """A part of the body; reading continues when the result is done, which may raise Broken."""


class _Engine(HTTP1Connection):
    """Reads chunks as they come: tornado reads the size, the content and the end of each by itself.

    That makes it stop and start to watch the connection for each event of a stream.
    """

    async def _read_chunked_body(self, delegate: HTTPMessageDelegate) -> None:
        chunks, work = Chunks(), 0
        while not chunks.is_complete:
            piece = await self.stream.read_bytes(READ_BYTES, partial=True)
            try:
                content = chunks.feed(piece)
            except BadChunk as error:
                if error.content:
                    await self._deliver_body(delegate, error.content)
                raise HTTPInputError(str(error)) from error
            if content:
                await self._deliver_body(delegate, content)
            work += len(piece)
            if work >= READ_BYTES:  # other requests are served between, however fast this engine is
                work = 0
                await asyncio.sleep(0)

    async def _deliver_body(self, delegate: HTTPMessageDelegate, data: bytes) -> None:
        await super()._deliver_body(delegate, data)
        _check_cancelled()


class _Delegate(HTTPMessageDelegate):
    def __init__(self, connection: PooledConnection, receiver: Receiver) -> None:
        self._connection = connection
        self._receiver = receiver
        self._left = MAX_ANSWER_BYTES
        self.is_whole = False
        self.is_too_large = False

    def headers_received(self, start_line: RequestStartLine | ResponseStartLine, headers: HTTPHeaders) -> None:
        if isinstance(start_line, ResponseStartLine) and start_line.code >= 200:
            self._receiver.head(start_line.code, headers)

    def data_received(self, chunk: bytes) -> Awaitable[None] | None:
        self._left -= len(chunk)
        if self._left < 0:
            self.is_too_large = True
            self._connection.stream.close()
            return None
        return self._receiver.data(chunk)

    def finish(self) -> None:
        self.is_whole = True


async def exchange(
    connection: PooledConnection, path: str, headers: Mapping[str, str], body: bytes, receiver: Receiver
) -> bool:
    """Send the request and read the answer to its end; returns whether the connection may be used again.

    Raises BrokenExchange and AnswerTooLarge. When it is cancelled, the connection is closed, by which the engine
    notices.
    """
    delegate = _Delegate(connection, receiver)
    parameters = HTTP1ConnectionParameters(max_body_size=UNLIMITED_BYTES, max_header_size=MAX_HEADER_BYTES)
    http = _Engine(connection.stream, is_client=True, params=parameters)
    is_whole = False
    try:
        sent = HTTPHeaders({**headers, "Host": "engine", "Content-Length": str(len(body))})
        http.write_headers(RequestStartLine("POST", path, "HTTP/1.1"), sent, body)
        http.finish()
        is_open = await http.read_response(delegate)
        is_whole = delegate.is_whole
    except StreamClosedError as error:
        if delegate.is_too_large:
            raise _too_large() from error
        _check_cancelled()
        raise BrokenExchange(str(error.real_error or "it was closed")) from error
    finally:
        if not is_whole:
            connection.stream.close()
    if delegate.is_too_large:
        raise _too_large()
    if not is_whole:
        _check_cancelled()
        raise BrokenExchange("it was closed within the answer")
    return is_open and not connection.stream.closed()


def _check_cancelled() -> None:
    """Raises CancelledError if this task was cancelled, though the exception did not come through.

    `asyncio.wait_for` of Python 3.11 drops it if what it waits for ends at the same time, as a write does when a client
    leaves; tornado replaces it by an exception of its own where a delegate is called.
    """
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError


def _too_large() -> AnswerTooLarge:
    most = MAX_ANSWER_BYTES >> 20
    return AnswerTooLarge(
        f"the answer is larger than {most} MiB, the limit of a gateway; send fewer inputs at once, "
        'or ask for embeddings with "encoding_format": "base64"'
    )
