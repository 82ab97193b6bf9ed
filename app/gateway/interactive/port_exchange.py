"""One request of a browser for a port of a job: let in, passed on, and answered as the job answers it."""

import asyncio
import contextlib
import logging
import socket
import time
from collections.abc import Awaitable
from typing import cast

from tornado.http1connection import HTTP1Connection, HTTP1ConnectionParameters
from tornado.httputil import HTTPHeaders, HTTPMessageDelegate, HTTPServerRequest, RequestStartLine, ResponseStartLine
from tornado.iostream import IOStream, StreamClosedError

from app.domain.errors import TrainyardError
from app.domain.port_addresses import PortAddress
from app.domain.spec.interactive import NOTEBOOK_PORT
from app.gateway.client_address import address_of
from app.gateway.interactive import (
    client_sockets,
    port_answer,
    port_cookies,
    port_refusals,
    port_request,
    port_splice,
    port_tunnel,
    port_upload,
)
from app.gateway.interactive.port_access import PortGrant
from app.gateway.interactive.port_answer import MOST_HEADER_BYTES, SWITCHED, PortAnswer
from app.gateway.interactive.port_connections import SandboxPort
from app.gateway.interactive.port_headers import Asker, for_job, upgrade_headers, user_text
from app.gateway.interactive.port_refusals import PortRefused
from app.gateway.interactive.port_request import CHUNKED, PortRequest
from app.gateway.interactive.port_splice import DetachedConnection
from app.gateway.interactive.port_upload import Answering
from app.gateway.interactive.ports_side import PortsSide
from app.gateway.interactive.sandbox_connection import NotReached, RefusedThere
from app.host.pipes import SCARCE
from app.security import signed_tokens

PIECE_BYTES = 128 << 10
UNLIMITED_BYTES = 1 << 50  # answers are passed on as they come
LEFT_SECONDS = 5.0  # in which the job may read what a browser has sent before it left
STALLED_SECONDS = 120.0  # in which the job must take something of a body; the browser may have left behind it
LONGEST_BODY_SECONDS = 24 * 3600.0  # silence ends a request that stalls
_PARAMETERS = HTTP1ConnectionParameters(
    max_body_size=UNLIMITED_BYTES, max_header_size=MOST_HEADER_BYTES, chunk_size=PIECE_BYTES
)
_CLOSED = PortRefused(502, "the job closed the connection before it answered")
_NO_MORE_FILES = PortRefused(503, "this gateway may open no more files now; retry later", Retry_After="2")
logger = logging.getLogger(__name__)


class PortExchange(HTTPMessageDelegate):
    """Reads a request from its connection, and writes the answer to it. It counts as open until its end."""

    def __init__(self, side: PortsSide, request: HTTPServerRequest, address: PortAddress | None) -> None:
        self._side, self._raw, self._address = side, request, address
        self._connection = cast("HTTP1Connection", request.connection)
        self._answering: Answering | None = None  # in its place, once a large body is read of it
        self._job: IOStream | None = None  # the connection to the port
        self._http: HTTP1Connection | None = None
        self._tunnel: DetachedConnection | None = None  # the browser's, once it is a WebSocket's or a large body's
        self._inside: DetachedConnection | None = None  # the job's, then
        self._uploading: asyncio.Task[None] | None = None
        self._answer: asyncio.Task[None] | None = None
        self._is_counted = self._is_answered = self._is_chunked = self._is_spliced = False
        self._received = self._unsent = 0
        self._waits_since: float | None = None  # for the job to take a piece of the body
        self.access: PortGrant | None = None
        self.client = address_of(request, side.proxies)
        self.active_at = self._left_at = time.monotonic()

    @property
    def address(self) -> PortAddress:
        return cast("PortAddress", self._address)

    @property
    def _is_gone(self) -> bool:
        """Whether nothing can be written to the browser as HTTP."""
        if self._answering is not None:
            return self._answering.is_closed
        return client_sockets.of(self._connection.stream) is None

    def has_left(self, now: float) -> bool:
        """Whether the browser's side has ended for a while; nothing is read of it while the job reads nothing."""
        if not client_sockets.has_left(self._browser()):
            self._left_at = now
        return now - self._left_at > LEFT_SECONDS

    @property
    def _out(self) -> HTTP1Connection | Answering:
        return self._answering or self._connection

    def _browser(self) -> socket.socket | None:
        """None once it is closed."""
        if self._answering is not None:
            return self._answering.connection
        return self._tunnel.connection if self._tunnel is not None else client_sockets.of(self._connection.stream)

    def check_upload(self, now: float) -> None:
        """Give up a body of which the job takes nothing: the leave of a browser is not seen behind what it has sent."""
        if self._job is None or self._waits_since is None or self._is_answered:
            return
        if (unsent := client_sockets.unsent(client_sockets.of(self._job))) != self._unsent:
            self._unsent, self._waits_since = unsent, now
        elif now - self._waits_since > STALLED_SECONDS:
            self._give_up(PortRefused(504, f"the job has taken nothing of the body for {STALLED_SECONDS:g} s"))

    @property
    def is_tunnel(self) -> bool:
        return self._tunnel is not None and not self._is_spliced

    async def headers_received(self, start_line: RequestStartLine | ResponseStartLine, headers: HTTPHeaders) -> None:
        """The body is read once this is done."""
        self._connection.set_close_callback(self.on_connection_close)
        client_sockets.watch(self._connection.stream)
        self._connection.set_max_body_size(UNLIMITED_BYTES)  # what is too long is refused in words
        self._connection.set_body_timeout(LONGEST_BODY_SECONDS)
        try:
            await self._begin(cast("RequestStartLine", start_line), headers)
        except PortRefused as refused:
            self._refuse(refused)
        except TrainyardError as error:
            self._refuse(port_refusals.refusal_of(error, self.address, dashboard=self._side.dashboard))
        except StreamClosedError:
            self._refuse(_CLOSED)
        except Exception:
            logger.exception("a request for a port failed")
            self._refuse(
                PortRefused(500, "something went wrong here; the operator finds the reason in the gateway's log")
            )

    def data_received(self, chunk: bytes) -> Awaitable[None] | None:
        self.active_at = time.monotonic()
        self._received += len(chunk)
        if self._http is None:
            return None
        if self._received > self._side.most_body_bytes:
            self._give_up(self._too_large())
            return None
        return self._pass_on(chunk)

    def finish(self) -> None:
        if self._is_chunked and self._job is not None and not self._job.closed():
            self._job.write(b"0\r\n\r\n")
        if self._is_gone and self._answer is not None and self._tunnel is None:
            self.end()  # the browser has left meanwhile, and no callback says so

    def on_connection_close(self) -> None:
        self.end()

    def end(self) -> None:
        """At once: the browser's connection and the job's are closed."""
        if self._job is not None:
            client_sockets.reset(self._job)
        if self._inside is not None:
            self._inside.resets()
        if self._tunnel is None:
            self._out.close()
        for task in (self._answer, self._uploading):
            if task is not None and task is not asyncio.current_task():
                task.cancel()  # it may wait for a write that is never done
        self._uncount()

    async def _begin(self, start: RequestStartLine, headers: HTTPHeaders) -> None:
        """Raises PortRefused and TrainyardError."""
        if self._address is None:
            raise PortRefused(404, self._side.what_is_here)
        request = port_request.read(start, headers, self._address)
        self._side.enter(self)
        self._is_counted = True
        if request.path == self._address.prefix:  # relative links of the page need the slash
            query = start.path.partition("?")[2]
            raise PortRefused(308, "", Location=self._address.url + (f"?{query}" if query else ""))
        access = await self._side.access.of(request, self.client)
        if self._is_counted:  # else the browser has left meanwhile
            self._side.admit(self)
        self.access = access
        if request.is_websocket or not access.credential.is_key:
            port_request.check_page(request, headers)
        if access.credential.in_url and request.method in port_request.SAFE and not request.is_websocket:
            raise self._kept(request, access)
        if request.length > self._side.most_body_bytes:
            raise self._too_large()
        await self._ask(request, headers, access)

    async def _ask(self, request: PortRequest, headers: HTTPHeaders, access: PortGrant) -> None:
        """Send the head of the request, and wait for the answer beside. Raises PortRefused and StreamClosedError."""
        opened = access.opened
        if opened.endpoint is None:
            raise PortRefused(503, opened.why, Retry_After="2")
        self._job = await self._connected(SandboxPort(opened.endpoint, opened.port.port), opened.port.name)
        asker = Asker(address=self.client, user=user_text(opened.user))
        sent = for_job(headers, request.address, asker, is_ours=self._side.access.is_of_the_platform)
        if opened.port.name == NOTEBOOK_PORT:
            sent["Authorization"] = f"token {self._side.notebook_token(opened)}"
        if request.is_websocket:
            sent.update(upgrade_headers(headers))
        else:
            sent["Connection"] = "close"
        if request.length != CHUNKED and (request.has_body or request.method in ("POST", "PUT", "PATCH")):
            sent["Content-Length"] = str(request.length)
        target = request.target(keeps_prefix=opened.port.keep_prefix)
        self._is_chunked = request.length == CHUNKED
        self._http = HTTP1Connection(self._job, is_client=True, params=_PARAMETERS)
        await self._http.write_headers(RequestStartLine(request.method, target, "HTTP/1.1"), sent)
        if request.length >= port_splice.LEAST_BYTES:
            if self._is_gone:  # the browser has left meanwhile
                self.end()
                return
            self._take_over(request, headers)
        receiver = PortAnswer(
            request,
            headers,
            self._http,
            self._head,
            self._data,
            keeps_prefix=opened.port.keep_prefix,
            port=opened.port.port,
        )
        self._answer = self._side.run(self._answered(self._http, receiver))

    def _take_over(self, request: PortRequest, headers: HTTPHeaders) -> None:
        """Read the body, which is large, past the server. Raises StreamClosedError."""
        stream, browser = self._connection.detach(), None
        try:
            browser = port_splice.taken(stream)
            self._answering = self._raw.connection = Answering(browser.connection, request.method)
        except OSError as error:  # this process may open no more files
            stream.close()
            if browser is not None:
                browser.connection.close()
            self.end()
            raise StreamClosedError(error) from error
        if headers.get("Expect", "").lower() == "100-continue":
            self._answering.go_on()
        self._uploading = self._side.run(self._uploaded(browser, request.length))
        self._uploading.add_done_callback(lambda _: browser.connection.close())

    async def _uploaded(self, browser: DetachedConnection, length: int) -> None:
        job = cast("IOStream", self._job)
        try:
            is_there = await port_upload.pass_on(browser, job, length, self._side.pipes, self._moved, self._waits)
        except OSError:
            self._give_up(_NO_MORE_FILES)
        else:
            if not is_there:
                self.end()

    async def _connected(self, place: SandboxPort, name: str) -> IOStream:
        """Raises PortRefused."""
        try:
            return await self._side.connections.open(place)
        except RefusedThere as error:
            raise PortRefused(502, f"the port {name} of the job does not answer: {error}") from error
        except NotReached as error:
            raise PortRefused(502, str(error)) from error

    async def _answered(self, http: HTTP1Connection, receiver: PortAnswer) -> None:
        """Read the answer to its end."""
        why = port_answer.UNREADABLE
        try:
            try:
                await http.read_response(receiver)
            except StreamClosedError as error:
                why = port_answer.why_closed(error.real_error)
            if self._tunnel is not None and self._inside is not None:
                await self._carry(self._tunnel, self._inside, receiver)
            elif receiver.is_whole:
                self._finish()
            elif self._is_answered:
                self._out.close()  # by which the browser sees that something is missing
            else:
                why = f"{port_answer.NO_HTTP}: {receiver.problem}" if receiver.problem else why
                self._refuse(PortRefused(502, f"the job did not answer: {why}"))
        except Exception:
            logger.exception("an answer of a port failed")
            self.end()
        finally:
            if self._job is not None:
                self._job.close()
            for each in (self._tunnel, self._inside):
                if each is not None:
                    each.connection.close()
            if self._uploading is not None:
                self._uploading.cancel()
            self._uncount()

    async def _carry(self, browser: DetachedConnection, job: DetachedConnection, receiver: PortAnswer) -> None:
        """What follows the head of an answer, to its end; nothing of it is copied here."""
        with contextlib.suppress(OSError):  # one of them broke
            if receiver.is_switched:
                await port_tunnel.join(browser, job, self._side.pipes, self._moved)
            else:
                await port_splice.pass_on(job, browser, receiver.spliced, self._side.pipes, self._moved)

    async def _head(self, status: int, headers: HTTPHeaders, *, detaches: bool) -> None:
        self.active_at = time.monotonic()
        if self._is_answered or self._is_gone:
            return
        if detaches:  # before anything is waited for: a stream that is idle closes itself when the job's side ends
            try:
                self._inside = port_splice.taken(cast("IOStream", self._job))
            except OSError as error:
                self._refuse(_NO_MORE_FILES if error.errno in SCARCE else _CLOSED)
                return
        self._is_answered = True
        reason = port_refusals.phrase(status)
        try:
            await self._out.write_headers(ResponseStartLine("HTTP/1.1", status, reason), headers)
        except StreamClosedError:
            self.end()
            return
        if detaches and not self._is_gone:
            self._is_spliced = status != SWITCHED
            stream = self._connection.detach()
            try:
                self._tunnel = port_splice.taken(stream)
            except OSError:  # this process may open no more files
                stream.close()
                self.end()

    def _moved(self) -> None:
        self.active_at, self._waits_since = time.monotonic(), None

    def _waits(self) -> None:
        """For the job to take more of the body."""
        self._waits_since = self._waits_since or time.monotonic()

    async def _data(self, chunk: bytes) -> None:
        self.active_at = time.monotonic()
        try:
            await self._out.write(chunk)
        except StreamClosedError:
            self.end()
        self.active_at = time.monotonic()

    async def _pass_on(self, chunk: bytes) -> None:
        """A piece of the body; the answer says it when the job reads no more.

        Written to the stream itself: what HTTP1Connection returns for a write is never done once its answer has ended.
        """
        piece = b"%x\r\n%b\r\n" % (len(chunk), chunk) if self._is_chunked else chunk
        self._waits_since = time.monotonic()
        with contextlib.suppress(StreamClosedError):
            if self._job is not None:
                await self._job.write(piece)
        self._waits_since = None

    def _finish(self) -> None:
        with contextlib.suppress(StreamClosedError):
            self._out.finish()
        self._uncount()

    def _kept(self, request: PortRequest, access: PortGrant) -> PortRefused:
        """The token goes from the URL into a cookie."""
        token = access.credential.value
        cookie = port_cookies.setting(self.address, token, seconds=max(1, signed_tokens.seconds_left(token)))
        return PortRefused(303, "", Location=request.clean_url, Set_Cookie=cookie)

    def _too_large(self) -> PortRefused:
        return PortRefused(
            413, f"the body is longer than {self._side.most_body_bytes} bytes, the limit of this gateway"
        )

    def _give_up(self, refused: PortRefused) -> None:
        """While the body comes."""
        self._refuse(refused)
        if self._job is not None:
            self._job.close()

    def _refuse(self, refused: PortRefused) -> None:
        self._uncount()
        if self._is_answered or self._is_gone:
            return
        self._is_answered = True
        if self._job is not None:
            self._job.close()
        with contextlib.suppress(StreamClosedError):
            port_refusals.answer(self._raw, refused)

    def _uncount(self) -> None:
        if self._is_counted:
            self._is_counted = False
            self._side.leave(self)
