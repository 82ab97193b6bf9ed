"""A job's answer while it is read, checked and passed on to the browser."""

import base64
import hashlib
from collections.abc import Awaitable, Callable
from http.client import responses
from typing import Protocol, cast

from tornado.http1connection import HTTP1Connection
from tornado.httputil import HTTPHeaders, HTTPInputError, HTTPMessageDelegate, RequestStartLine, ResponseStartLine
from tornado.iostream import UnsatisfiableReadError

from app.gateway.interactive import port_splice
from app.gateway.interactive.port_headers import for_browser, upgrade_headers
from app.gateway.interactive.port_request import PortRequest

SWITCHED = 101
FINAL = 200  # and above; what is below announces another answer
MOST_ANNOUNCED = 8  # answers below FINAL, before that one
MOST_DIGITS = 18  # of a length
MOST_HEADER_BYTES = 64 << 10
_WITHOUT_BODY = (204, 304)
_GUID = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"  # RFC 6455, section 1.3
_PROTOCOL = "Sec-Websocket-Protocol"

Data = Callable[[bytes], Awaitable[None]]


NO_HTTP = "its answer is not HTTP/1.1"
UNREADABLE = f"{NO_HTTP}: its status line or a header cannot be read"


def why_closed(error: BaseException | None) -> str:
    """Why nothing more comes of a job, by what closed the connection to it."""
    if isinstance(error, UnsatisfiableReadError):
        return f"{NO_HTTP}: its headers do not end within {MOST_HEADER_BYTES} bytes"
    return "it closed the connection"


class Head(Protocol):
    """``detaches``: what follows the head is written to the connection itself."""

    def __call__(self, status: int, headers: HTTPHeaders, *, detaches: bool) -> Awaitable[None]: ...


class PortAnswer(HTTPMessageDelegate):
    """``head`` and ``data`` pass on; reading continues when they are done.

    ``problem`` says what is wrong with an answer that was given up before its head was passed on.
    """

    def __init__(
        self,
        request: PortRequest,
        asked: HTTPHeaders,
        http: HTTP1Connection,
        head: Head,
        data: Data,
        *,
        keeps_prefix: bool,
        port: int,
    ) -> None:
        self._request, self._asked, self._http = request, asked, http
        self._head, self._data = head, data
        self._keeps_prefix, self._port = keeps_prefix, port
        self.is_whole = False
        self.is_switched = False
        self.spliced = 0  # bytes of the body, which are left to the connection
        self.problem = ""
        self._announced = 0

    async def headers_received(self, start_line: RequestStartLine | ResponseStartLine, headers: HTTPHeaders) -> None:
        code = cast("ResponseStartLine", start_line).code
        if code == SWITCHED:
            await self._switch(headers)
        elif code >= FINAL:
            sent = self._checked(code, headers)
            self.spliced = self._bytes_to_splice(sent)
            if self.spliced:
                sent["Connection"] = "close"  # what passes HTTP by is the last on its connection
                self._http.detach()
            await self._head(code, sent, detaches=self.spliced > 0)
        else:
            self._announced += 1
            if self._announced > MOST_ANNOUNCED:
                raise self._wrong(f"more than {MOST_ANNOUNCED} statuses below {FINAL} come before its own")

    async def data_received(self, chunk: bytes) -> None:
        await self._data(chunk)

    def finish(self) -> None:
        self.is_whole = True
        self._http.stream.close()  # whatever else the job says, or has not read of the request

    def _bytes_to_splice(self, sent: HTTPHeaders) -> int:
        """The length of a body that is large, while nothing of the request is to be passed on any more."""
        length = int(sent.get("Content-Length", "0"))
        alone = self._request.method == "GET" and not self._request.has_body
        return length if alone and length >= port_splice.LEAST_BYTES else 0

    def _checked(self, code: int, headers: HTTPHeaders) -> HTTPHeaders:
        """What the browser gets. Raises HTTPInputError."""
        if code not in responses:
            raise self._wrong(f"the status {code} does not exist")
        lengths = headers.get_list("Content-Length")
        if lengths and "Transfer-Encoding" in headers:
            raise self._wrong("it has both Content-Length and Transfer-Encoding")
        if len(set(lengths)) > 1 or not all(map(_is_length, lengths)):
            raise self._wrong("its Content-Length is not one whole number")
        sent = for_browser(headers, self._request.address, keeps_prefix=self._keeps_prefix, port=self._port)
        if lengths and code not in _WITHOUT_BODY:
            sent["Content-Length"] = lengths[0]
        return sent

    async def _switch(self, headers: HTTPHeaders) -> None:
        """Both ends of the connection belong to the WebSocket from here on. Raises HTTPInputError."""
        if not self._request.is_websocket:
            raise self._wrong("it switches protocols without being asked to")
        key = self._asked["Sec-WebSocket-Key"].encode() + _GUID.encode()
        accepted = base64.b64encode(hashlib.sha1(key, usedforsecurity=False).digest()).decode()
        if headers.get("Sec-WebSocket-Accept") != accepted or headers.get("Upgrade", "").lower() != "websocket":
            raise self._wrong("it does not accept the WebSocket as RFC 6455 demands")
        offered = {each.strip() for each in self._asked.get(_PROTOCOL, "").split(",")}
        if headers.get(_PROTOCOL, "") not in {"", *offered}:
            raise self._wrong("it chooses a subprotocol that was not offered")
        sent = for_browser(headers, self._request.address, keeps_prefix=self._keeps_prefix, port=self._port)
        sent.pop("Cache-Control", None)
        sent.update(upgrade_headers(headers))
        self.is_switched = True
        self._http.detach()
        await self._head(SWITCHED, sent, detaches=True)

    def _wrong(self, problem: str) -> HTTPInputError:
        self.problem = problem
        return HTTPInputError(problem)


def _is_length(value: str) -> bool:
    return value.isascii() and value.isdigit() and len(value) <= MOST_DIGITS
