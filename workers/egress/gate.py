"""An HTTP proxy that connects a job to the services of its project's list, and to nothing else.

It resolves names itself, connects only to addresses that were checked, and lets a tunnel begin only with TLS for the
host that was asked for, so that a listed host is not a way to others behind the same address.
"""

import asyncio
import contextlib
import re
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from app.domain.spec.locations.egress import PRIVATE, is_listed
from app.domain.spec.locations.hosts import address_of, is_allowed, is_public
from app.domain.spec.locations.outbound_proxy import SETTING, OutboundProxy, may_be_asked, refusal
from workers.egress.client_hello import MOST_BYTES, NotTls, server_name
from workers.egress.proxy_request import MOST_HEAD_BYTES, BadProxyRequest, ProxyRequest, parse

MOST_CONNECTIONS = 256
HEAD_SECONDS = 10.0  # for a request, and for the beginning of TLS
CONNECT_SECONDS = 10.0
IDLE_SECONDS = 600.0
_PIECE = 1 << 16
_UNPRINTABLE = re.compile(r"[^\x20-\x7e]")
_READ_LIMIT = MOST_HEAD_BYTES + MOST_BYTES

Resolve = Callable[[str, int], Awaitable[Sequence[str]]]


@dataclass
class EgressConnection:
    """One connection of the job: what it asked for, what came of it, and the bytes that passed."""

    host: str = ""
    port: int = 0
    refused: str = ""  # why; empty for one that was made
    sent: int = 0
    received: int = 0
    active_at: float = field(default_factory=time.monotonic)


class OnChange(Protocol):
    def __call__(self, connection: EgressConnection, *, has_ended: bool) -> None:
        """A connection was made, or has ended, or was refused."""


class EgressRefused(Exception):
    """The job may not connect there, or nothing could be connected to; with the status line of the answer."""

    def __init__(self, answer: str, why: str) -> None:
        super().__init__(why)
        self.answer = answer


async def resolve(host: str, port: int) -> Sequence[str]:
    """The addresses of a host. Raises OSError."""
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(address[0]) for *_, address in found))


class Gate:
    """Serves connections; ``services`` is the project's list, ``private`` what the operator allows of private hosts.

    ``proxy``: the operator's, which is connected to instead of the services that it is for.
    """

    def __init__(
        self,
        services: Sequence[str],
        private: Sequence[str],
        on_change: OnChange,
        *,
        proxy: OutboundProxy | None = None,
        resolver: Resolve = resolve,
    ) -> None:
        self._services, self._private, self._proxy = services, tuple(private), proxy
        self._on_change = on_change
        self._resolve = resolver
        self._open = 0

    async def serve(self, listener: socket.socket) -> None:
        """Until cancelled."""
        server = await asyncio.start_server(self._handle, sock=listener, limit=_READ_LIMIT)
        async with server:
            await server.serve_forever()

    async def _handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = EgressConnection()
        self._open += 1
        try:
            await self._connect(connection, reader, writer)
        except EgressRefused as error:
            connection.refused = str(error)
            with contextlib.suppress(OSError):
                writer.write(_answer(error))
                await writer.drain()
        except (OSError, asyncio.IncompleteReadError):
            pass  # one of the two ends broke the connection
        finally:
            self._open -= 1
            writer.close()
            self._on_change(connection, has_ended=True)

    async def _connect(
        self, connection: EgressConnection, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        request = await _request(reader)
        connection.host, connection.port = request.host, request.port
        if self._open > MOST_CONNECTIONS:
            raise EgressRefused("503 Service Unavailable", f"more than {MOST_CONNECTIONS} connections are open")
        if not is_listed(request.host, request.port, self._services):
            raise EgressRefused("403 Forbidden", "it is not in the list of the project's services (egress)")
        upstream, up_writer = await self._opened(request)
        try:
            first = request.forwarded
            if request.is_tunnel:
                writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
                await writer.drain()
                first = await _checked_tls(reader, request.host)
            connection.sent = len(first)
            up_writer.write(first)
            self._on_change(connection, has_ended=False)
            most = None if request.is_tunnel else request.length
            await self._relay(connection, (reader, writer), (upstream, up_writer), most)
        finally:
            up_writer.close()

    async def _opened(self, request: ProxyRequest) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """A connection to one of the host's addresses that a job may connect to. Raises EgressRefused."""
        if self._proxy is not None and self._proxy.is_for(request.host):
            return await self._through(self._proxy, request)
        try:
            addresses = await asyncio.wait_for(self._resolve(request.host, request.port), CONNECT_SECONDS)
        except (OSError, TimeoutError, UnicodeError) as error:
            raise EgressRefused("502 Bad Gateway", f"its name could not be resolved: {error}") from error
        allowed = [address for address in addresses if self._may_connect(request.host, address)]
        if not allowed:
            raise EgressRefused("403 Forbidden", PRIVATE)
        why = ""
        for address in allowed:
            try:
                opening = asyncio.open_connection(address, request.port, limit=_PIECE)
                return await asyncio.wait_for(opening, CONNECT_SECONDS)
            except (OSError, TimeoutError) as error:
                why = str(error) or f"no answer within {CONNECT_SECONDS:g} s"
        raise EgressRefused("502 Bad Gateway", f"it could not be connected to: {why}")

    async def _through(
        self, proxy: OutboundProxy, request: ProxyRequest
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """A connection that the proxy makes, by CONNECT also for plain HTTP. Raises EgressRefused."""
        try:
            addresses = await asyncio.wait_for(self._resolve(request.host, request.port), CONNECT_SECONDS)
        except (OSError, TimeoutError, UnicodeError):
            addresses = ()  # in some networks only the proxy can
        if not may_be_asked(request.host, addresses, self._private):
            raise EgressRefused("403 Forbidden", PRIVATE)
        writer: asyncio.StreamWriter | None = None
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                reader, writer = await asyncio.open_connection(proxy.host, proxy.port, limit=_PIECE)
                writer.write(proxy.connect_request(request.host, request.port))
                head = await reader.readuntil(b"\r\n\r\n")
        except (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError) as error:
            if writer is not None:
                writer.close()
            raise EgressRefused("502 Bad Gateway", f"the proxy of {SETTING} does not answer: {error}") from error
        if why := refusal(head):
            writer.close()
            raise EgressRefused("502 Bad Gateway", why)
        return reader, writer

    def _may_connect(self, host: str, address: str) -> bool:
        found = address_of(address)
        return found is not None and (is_public(found) or is_allowed(host, found, self._private))

    async def _relay(
        self,
        connection: EgressConnection,
        job: tuple[asyncio.StreamReader, asyncio.StreamWriter],
        service: tuple[asyncio.StreamReader, asyncio.StreamWriter],
        most: int | None,
    ) -> None:
        """Copy both ways; of what the job sends at most so many bytes, None: all."""

        async def send() -> None:
            async for piece in _pieces(job[0], service[1], connection, most):
                connection.sent += len(piece)

        async def receive() -> None:
            async for piece in _pieces(service[0], job[1], connection):
                connection.received += len(piece)

        tasks = [asyncio.create_task(way) for way in (send(), receive())]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
            for task in done:
                task.result()
        finally:
            for task in tasks:
                task.cancel()


async def _request(reader: asyncio.StreamReader) -> ProxyRequest:
    """Raises EgressRefused, and IncompleteReadError for a client that went away."""
    try:
        head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), HEAD_SECONDS)
        if len(head) > MOST_HEAD_BYTES:
            raise BadProxyRequest(f"its head is longer than {MOST_HEAD_BYTES} bytes")
        return parse(head)
    except TimeoutError as error:
        raise EgressRefused("408 Request Timeout", f"no request came within {HEAD_SECONDS:g} s") from error
    except (BadProxyRequest, asyncio.LimitOverrunError) as error:
        raise EgressRefused("400 Bad Request", f"no proxy request: {error}") from error


async def _checked_tls(reader: asyncio.StreamReader, host: str) -> bytes:
    """The beginning of a tunnel. Raises EgressRefused unless it is TLS for this host; an address has no name in TLS."""
    wanted = "" if address_of(host) is not None else host
    data = b""
    try:
        async with asyncio.timeout(HEAD_SECONDS):
            while (name := server_name(data)) is None:
                if len(data) > MOST_BYTES or not (piece := await reader.read(_PIECE)):
                    raise NotTls("it ends within the client hello")
                data += piece
    except (NotTls, TimeoutError) as error:
        raise EgressRefused(
            "403 Forbidden", f"the tunnel is no TLS connection: {str(error) or 'nothing came'}"
        ) from error
    if name != wanted:
        raise EgressRefused("403 Forbidden", f"the tunnel is for another server: {name or 'none is named'}")
    return data


async def _pieces(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, connection: EgressConnection, most: int | None = None
) -> AsyncIterator[bytes]:
    """Copies until the end of input, which is passed on, or until ``most`` bytes have passed.

    Raises OSError when nothing has passed either way for long.
    """
    while most is None or most > 0:
        try:
            piece = await asyncio.wait_for(reader.read(_PIECE if most is None else min(most, _PIECE)), IDLE_SECONDS)
        except TimeoutError:
            if time.monotonic() - connection.active_at >= IDLE_SECONDS:
                raise  # an OSError
            continue
        if not piece:
            break
        connection.active_at = time.monotonic()
        most = None if most is None else most - len(piece)
        yield piece
        writer.write(piece)
        await writer.drain()
    if most is None:
        with contextlib.suppress(OSError):
            writer.write_eof()


def _answer(refused: EgressRefused) -> bytes:
    """The reason is also in the status line: of a tunnel that was refused, many clients show nothing else."""
    text = f"Trainyard's proxy: {refused}\n".encode()
    status = f"HTTP/1.1 {refused.answer}: {_UNPRINTABLE.sub('?', str(refused))}"
    headers = ("Content-Type: text/plain", f"Content-Length: {len(text)}", "Connection: close")
    return "\r\n".join((status, *headers, "", "")).encode() + text
