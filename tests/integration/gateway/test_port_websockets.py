"""WebSockets of ports: passed on as they are, for pages of the port itself, and only while the person may."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest
from tornado.httpclient import HTTPClientError, HTTPRequest
from tornado.httpserver import HTTPServer
from tornado.netutil import bind_sockets
from tornado.web import Application
from tornado.websocket import WebSocketClientConnection, WebSocketHandler, websocket_connect

from app.database.engine import Database
from app.domain.lifecycle.states import JobState
from tests.systems.gateways import SECONDS
from tests.systems.port_sites import HOSTS, PATHS, PortSite, ServedPort, end_job, saying, talking


class Echo(WebSocketHandler):
    def select_subprotocol(self, subprotocols: list[str]) -> str | None:
        return subprotocols[0] if subprotocols else None

    async def on_message(self, message: str | bytes) -> None:
        await self.write_message(message, binary=isinstance(message, bytes))

    def check_origin(self, origin: str) -> bool:
        del origin
        return True


@pytest.fixture(params=[PATHS, HOSTS], ids=["paths", "hosts"])
def site(request: pytest.FixtureRequest, database: Database, tmp_path: Path) -> Iterator[PortSite]:
    made = PortSite(database, tmp_path, request.param)
    made.serve()
    yield made
    made.close()


async def connect(port: ServedPort, *, cookie: str | None = None, **headers: str) -> WebSocketClientConnection:
    """Raises HTTPClientError when it is refused."""
    given = {"Host": port.address.host, "Cookie": port.cookie if cookie is None else cookie, **headers}
    request = HTTPRequest(f"ws://127.0.0.1:{port.site.port}{port.prefix}/echo", headers=given, request_timeout=SECONDS)
    return await websocket_connect(request, subprotocols=["own.v1"])


def run(site: PortSite, use: Callable[[ServedPort], Awaitable[None]]) -> None:
    """Use the port of a job that echoes messages."""

    async def served() -> None:
        [listener] = bind_sockets(0, "127.0.0.1")
        server = HTTPServer(Application([(r"/echo", Echo)]))
        server.add_sockets([listener])
        try:
            port = await asyncio.to_thread(site.opened, listener.getsockname()[1])
            async with asyncio.timeout(SECONDS):
                await use(port)
        finally:
            server.stop()
            await server.close_all_connections()

    asyncio.run(served())


def test_messages_go_both_ways(site: PortSite) -> None:
    async def use(port: ServedPort) -> None:
        socket = await connect(port, Origin=port.address.origin)
        assert socket.selected_subprotocol == "own.v1"
        for message in ("text", b"\x00\xff" * 100_000, ""):
            await socket.write_message(message, binary=isinstance(message, bytes))
            assert await socket.read_message() == message
        socket.close()
        assert await socket.read_message() is None

    run(site, use)


def test_pages_of_other_origins_and_nobody_without_a_token_open_none(site: PortSite) -> None:
    async def use(port: ServedPort) -> None:
        for expected, cookie, origin in (
            (403, None, "http://evil.example"),
            (403, None, "http://localhost"),
            (401, "", port.address.origin),
        ):
            with pytest.raises(HTTPClientError) as refused:
                await connect(port, cookie=cookie, Origin=origin)
            assert refused.value.code == expected

    run(site, use)


def test_a_key_opens_none_for_a_foreign_page(site: PortSite) -> None:
    async def use(port: ServedPort) -> None:
        with pytest.raises(HTTPClientError) as refused:
            await connect(port, cookie="", Authorization=f"Bearer {site.user_key}", Origin="http://evil.example")
        assert refused.value.code == 403

    run(site, use)


@pytest.mark.parametrize("way", ["key", "job"])
def test_it_ends_when_the_key_is_revoked_and_when_the_job_ends(site: PortSite, way: str) -> None:
    async def use(port: ServedPort) -> None:
        socket = await connect(port)
        if way == "key":
            await asyncio.to_thread(site.revoke_key)
        else:
            await asyncio.to_thread(end_job, site, port.address.job_id, status=JobState.COMPLETED)
        assert await socket.read_message() is None
        socket.close()

    run(site, use)


@pytest.mark.parametrize(
    "answer",
    [
        (
            b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            b"Sec-WebSocket-Accept: AAAAAAAAAAAAAAAAAAAAAAAAAAA=\r\n\r\n"
        ),
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: h2c\r\nConnection: Upgrade\r\n\r\n",
    ],
)
def test_no_connection_is_handed_over_without_a_handshake(site: PortSite, answer: bytes) -> None:
    with talking(saying(answer)) as number:
        port = site.opened(number)

        assert asyncio.run(_refused(port)) == 502


async def _refused(port: ServedPort) -> int:
    with pytest.raises(HTTPClientError) as refused:
        await connect(port)
    return int(refused.value.code)
