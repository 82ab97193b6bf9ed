"""Answers of an engine as a gateway reads them, over real connections."""

import asyncio
import inspect
import socket
import struct
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import pytest
from tornado.http1connection import HTTP1Connection
from tornado.httpserver import HTTPServer
from tornado.tcpclient import TCPClient
from tornado.testing import bind_unused_port
from tornado.web import Application, RequestHandler

from app.domain.serving.document import ServiceLimits
from app.domain.serving.states import ServiceState
from app.gateway import exchange as exchange_module
from app.gateway.backend import ServiceView
from app.gateway.chunks import Chunks
from app.gateway.dispatch import AdmittedRequest, Dispatch
from app.gateway.exchange import exchange
from app.gateway.loads import Loads
from app.gateway.pool import PooledConnection
from app.gateway.reply import ClientReply
from app.services.serving.endpoints import Endpoint

HEAD = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
EVENT = b"data: " + b"z" * 4000 + b"\n\n"
SOON = 10.0
BUFFERED_BYTES = 16 << 20  # that connections may hold at most


class Engine:
    """Sends events as fast as they are taken, to each connection that asks."""

    def __init__(self) -> None:
        self.sent = 0
        self.ended = asyncio.Event()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"{}")
        writer.write(HEAD)
        try:
            while True:
                writer.write(b"%x\r\n%s\r\n" % (len(EVENT), EVENT))
                await writer.drain()
                self.sent += len(EVENT)
        except OSError:
            writer.close()
            self.ended.set()

    async def stalled(self) -> None:
        """Returns when nothing is taken any more."""
        seen = -1
        while seen != self.sent or not seen:
            seen = self.sent
            await asyncio.sleep(0.2)


class OneReplica:
    """Stands for the gateway's backend and pool: a service with one replica."""

    def __init__(self, port: int) -> None:
        self.taken = 0
        self._endpoint = Endpoint(
            job_id="job-1", attempt=1, fence=1, address="127.0.0.1", port=port, revision=1, number=0
        )

    async def service(self, _: str, *, max_age: float = 0.5) -> ServiceView:
        del max_age
        return ServiceView("chat", ServiceState.ACTIVE, ServiceLimits(), (self._endpoint,), "")

    async def take(self, endpoint: Endpoint, *, fresh: bool = False) -> PooledConnection:
        del fresh
        self.taken += 1
        return await connected(endpoint.port, endpoint)


async def connected(port: int, endpoint: Endpoint | None = None) -> PooledConnection:
    whose: Any = endpoint
    return PooledConnection(whose, await TCPClient().connect("127.0.0.1", port, max_buffer_size=128 << 20))


async def serving(serve: Callable[..., Awaitable[None]]) -> tuple[asyncio.Server, int]:
    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    return server, server.sockets[0].getsockname()[1]


async def nothing_reported(_: object) -> None: ...


def test_a_client_that_stalls_and_leaves_ends_its_request_at_the_engine() -> None:
    results: list[BaseException | None] = []

    async def scenario() -> tuple[int, int]:
        engine = Engine()
        server, engine_port = await serving(engine.serve)
        replica: Any = OneReplica(engine_port)
        dispatch = Dispatch(replica, replica, Loads(nothing_reported))

        class Asking(RequestHandler):
            async def post(self) -> None:
                asked = AdmittedRequest(service_id="service-1", path="/v1/x", body=b"{}", streams=True)
                self.work = asyncio.create_task(dispatch.answer(asked, ClientReply(self)))
                await asyncio.wait([self.work])
                results.append(asyncio.CancelledError() if self.work.cancelled() else self.work.exception())

            def on_connection_close(self) -> None:
                self.work.cancel()

        listener, port = bind_unused_port()
        gateway = HTTPServer(Application([("/", Asking)]))
        gateway.add_socket(listener)
        client = socket.create_connection(("127.0.0.1", port))
        client.sendall(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n")
        await asyncio.wait_for(engine.stalled(), SOON)
        before = engine.sent
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        client.close()
        await asyncio.wait_for(engine.ended.wait(), SOON)
        gateway.stop()
        await gateway.close_all_connections()
        server.close()
        return engine.sent - before, replica.taken

    sent_after, taken = asyncio.run(scenario())

    assert sent_after < BUFFERED_BYTES
    assert [type(each) for each in results] == [asyncio.CancelledError]
    assert taken == 1


def test_tornado_still_reads_bodies_by_the_methods_that_are_overridden(monkeypatch: pytest.MonkeyPatch) -> None:
    fed: list[bytes] = []

    class Watched(Chunks):
        def feed(self, piece: bytes) -> bytes:
            fed.append(piece)
            return super().feed(piece)

    class Receiver:
        content = b""

        def head(self, status: int, headers: Mapping[str, str]) -> None: ...

        def data(self, chunk: bytes) -> None:
            self.content += chunk

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, ended: asyncio.Event) -> None:
        await reader.readuntil(b"{}")
        writer.write(HEAD + b"5\r\nhello\r\n0\r\n\r\n")
        await reader.read()
        writer.close()
        await writer.wait_closed()
        ended.set()

    async def scenario() -> bytes:
        ended = asyncio.Event()
        server, port = await serving(lambda reader, writer: answer(reader, writer, ended))
        receiver = Receiver()
        connection = await connected(port)
        assert await exchange(connection, "/v1/x", {}, b"{}", receiver)
        connection.stream.close()
        await ended.wait()
        server.close()
        return receiver.content

    monkeypatch.setattr(exchange_module, "Chunks", Watched)

    for name in ("_read_chunked_body", "_deliver_body"):
        assert inspect.iscoroutinefunction(getattr(HTTP1Connection, name, None)), name
    assert asyncio.run(scenario()) == b"hello"
    assert b"".join(fed) == b"5\r\nhello\r\n0\r\n\r\n"
