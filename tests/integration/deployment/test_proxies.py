"""The proxies of deploy/ before an API and a gateway: WebSockets, streams, large bodies, origins and what is closed."""

import asyncio
import base64
import hashlib
import json
import socket
import threading
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from sqlalchemy import delete
from tornado.httpclient import HTTPClientError, HTTPRequest
from tornado.netutil import OverrideResolver, Resolver
from tornado.websocket import WebSocketClientConnection, websocket_connect

from app.database.engine import Database
from app.models import WebSession
from tests.systems.apps import Api
from tests.systems.gateways import Answer
from tests.systems.port_sites import PortSite, ServedPort, echoing, talking
from tests.systems.proxies import API, JOBS, Proxy, proxy
from tests.systems.served import serving
from tests.systems.servers import free_port
from tests.systems.session_sites import Person
from tests.systems.system import wait_for
from trainyard.protocol.interactive import PROTOCOL

pytestmark = [pytest.mark.long, pytest.mark.timeout(60)]

SECONDS = 20.0
LARGE = 24 << 20
GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"  # of RFC 6455


class Behind:
    """An API with a file store, and a gateway with running jobs, behind a proxy."""

    def __init__(self, api: Api, gateway: PortSite, before: Proxy) -> None:
        self.api, self.gateway, self.before = api, gateway, before

    def ask(self, method: str, path: str, body: Any = None, *, host: str = API, **headers: str) -> Answer:
        connection = self.before.connection(host)
        given = {"Authorization": f"Bearer {self.api.key}", "Host": f"{host}:{self.before.port}", **headers}
        try:
            connection.request(method, path, body, given)
            return Answer(connection.getresponse())
        finally:
            connection.close()

    def enter(self, port: ServedPort) -> tuple[str, dict[str, str]]:
        """The host of the port, and what a browser sends once it has opened the address with a token."""
        host = str(urlsplit(port.address.origin).hostname)
        opened = self.ask("GET", f"/?trainyard_token={port.token()}", host=host, Authorization="")
        assert (opened.status, opened.headers["Location"]) == (303, f"{port.address.origin}/")
        cookie: str = opened.headers["Set-Cookie"]
        assert cookie.startswith("__Host-"), "of this host alone"
        return host, {"Host": port.address.host, "Cookie": cookie.partition(";")[0]}

    async def websocket(self, host: str, path: str, *protocols: str, **headers: str) -> WebSocketClientConnection:
        """Raises HTTPClientError when it is refused."""
        address = f"wss://{host}:{self.before.port}{path}"
        asked = HTTPRequest(address, headers=headers, request_timeout=SECONDS, validate_cert=False)
        resolver = OverrideResolver(resolver=Resolver(), mapping={host: "127.0.0.1"})
        return await websocket_connect(asked, subprotocols=[*protocols], resolver=resolver, max_message_size=1 << 20)


@pytest.fixture(params=["nginx", "caddy"])
def behind(request: pytest.FixtureRequest, database: Database, tmp_path: Path) -> Iterator[Behind]:
    port = free_port()
    url = f"https://*.{JOBS}:{port}"
    for name in ("gateway", "api"):
        (tmp_path / name).mkdir()
    gateway = PortSite(database, tmp_path / "gateway", TRAINYARD_GATEWAY_PORTS_URL=url, TRAINYARD_API_PROXIES="1")
    gateway.ports_url = url
    gateway.serve()
    api = Api(database, tmp_path / "api", TRAINYARD_API_PROXIES="1", TRAINYARD_WEB_ENABLED="true")
    try:
        with serving(api) as served:
            behind_it = int(served.url.rpartition(":")[2])
            with proxy(request.param, tmp_path / "proxy", api=behind_it, gateway=gateway.port, listens=port) as before:
                yield Behind(api, gateway, before)
    finally:
        api.close()
        gateway.close()


def in_time(use: Callable[[], Awaitable[None]]) -> None:
    async def limited() -> None:
        async with asyncio.timeout(2 * SECONDS):
            await use()

    asyncio.run(limited())


def test_commands_and_terminals_reach_a_job(behind: Behind) -> None:
    sandbox = behind.gateway.sandbox()
    session_id, ticket = sandbox.session("sh", "-c", "read line; echo heard $line; head -c 5000000 /dev/zero; echo end")

    async def use() -> None:
        bearer = {"Authorization": f"Bearer {ticket}"}
        person = Person(await behind.websocket(API, f"/v1/sessions/{session_id}/stream", PROTOCOL, **bearer))
        await person.type("a line\n")
        assert b"heard a line" in await person.until(b"heard a line\n")
        await person.until(b"end\n")
        await person.leave()

    in_time(use)
    assert behind.gateway.ended(session_id).exit_code == 0


def test_a_port_of_a_job_has_an_origin_of_its_own(behind: Behind) -> None:
    with echoing() as number:
        port = behind.gateway.opened(number)
        host, browser = behind.enter(port)
        asked = behind.ask("GET", "/a?b=1", host=host, Authorization="", **browser, **{"X-Forwarded-For": "9.9.9.9"})
        of_api = behind.ask("GET", "/v1/jobs", host=host, Authorization="")

    heard = dict(asked.json["headers"])
    assert (asked.json["path"], heard["host"]) == ("/a?b=1", port.address.host)
    assert (heard["x-forwarded-for"], heard["x-forwarded-proto"]) == ("127.0.0.1", "https")
    assert of_api.status == 401, "nothing but ports is here"
    known = ('"GET /v1/jobs" 401', "serving initial configuration")  # of nginx; Caddy has no log of requests
    wait_for(lambda: any(line in behind.before.logged() for line in known), seconds=SECONDS, what="the log is written")
    assert "trainyard_token" not in behind.before.logged()


def test_bodies_of_ports_are_streams(behind: Behind) -> None:
    some_came, begin_is_read = threading.Event(), threading.Event()

    def talk(connection: socket.socket, head: bytes) -> None:
        got = len(head.partition(b"\r\n\r\n")[2])
        while got < LARGE and (piece := connection.recv(1 << 20)):
            got += len(piece)
            if got > LARGE // 4:
                some_came.set()
        connection.sendall(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nbegun\n")
        if begin_is_read.wait(SECONDS):
            connection.sendall(bytes(got))

    with talking(talk) as number:
        port = behind.gateway.opened(number)
        host, browser = behind.enter(port)
        connection = behind.before.connection(host)
        connection.putrequest("POST", "/", skip_host=True)
        for name, value in {**browser, "Content-Length": str(LARGE)}.items():
            connection.putheader(name, value)
        connection.endheaders()
        connection.send(bytes(LARGE // 2))
        assert some_came.wait(SECONDS), "the proxy waits for the whole body"
        connection.send(bytes(LARGE - LARGE // 2))
        answer = connection.getresponse()
        assert (answer.status, answer.readline()) == (200, b"begun\n")
        begin_is_read.set()
        assert len(answer.read()) == LARGE
        connection.close()


def test_large_files_and_documents_reach_the_api(behind: Behind) -> None:
    boundary = "b0undary"
    content = (json.dumps({"prompt": "a" * 1000, "completion": "b"}) + "\n").encode() * (LARGE >> 10)
    parts = [
        f'--{boundary}\r\nContent-Disposition: form-data; name="purpose"\r\n\r\nfine-tune\r\n'.encode(),
        f'--{boundary}\r\nContent-Disposition: form-data; name="file"; filename="a.jsonl"\r\n\r\n'.encode() + content,
        f"\r\n--{boundary}--\r\n".encode(),
    ]
    kind = {"Content-Type": f"multipart/form-data; boundary={boundary}"}

    uploaded = behind.ask("POST", "/v1/files", b"".join(parts), **kind)
    document = behind.ask(
        "POST", "/v1/jobs", json.dumps({"name": "a" * (900 << 10)}), **{"Content-Type": "application/json"}
    )

    assert uploaded.status in (200, 201), uploaded.raw
    assert uploaded.json["bytes"] == len(content)
    assert (document.status, document.error["code"]) == (422, "VALIDATION_ERROR")


def test_the_api_is_open_and_what_is_for_the_network_inside_is_closed(behind: Behind) -> None:
    page = {"Origin": f"https://{API}:{behind.before.port}", "Content-Type": "application/x-www-form-urlencoded"}

    assert behind.ask("GET", "/health").status == 200
    assert behind.ask("GET", "/metrics").status == 403
    assert b"does not come from a page of this site" not in behind.ask("POST", "/ui/login", "key=none", **page).raw
    page["Origin"] = f"https://{API}"
    assert b"does not come from a page of this site" in behind.ask("POST", "/ui/login", "key=none", **page).raw


def test_browsers_speak_http_2_and_changes_of_pages_are_not_held_back(behind: Behind) -> None:
    assert behind.before.protocol_of_browsers(API) == "h2"
    form = {"Origin": f"https://{API}:{behind.before.port}", "Content-Type": "application/x-www-form-urlencoded"}
    cookie = behind.ask("POST", "/ui/login", f"key={behind.api.key}", **form).headers["Set-Cookie"].partition(";")[0]
    connection = behind.before.connection(API)
    connection.request("GET", "/ui/live?topic=jobs", headers={"Host": f"{API}:{behind.before.port}", "Cookie": cookie})
    answer = connection.getresponse()
    frames = (json.loads(line.removeprefix(b"data:")) for line in iter(answer.readline, b"") if line[:5] == b"data:")
    try:
        assert answer.headers["Content-Type"].startswith("text/event-stream")
        assert next(frames)["changed"] == []
        behind.api.submit()
        assert next(frames)["changed"] == ["jobs"]
    finally:
        with behind.api.db.write() as session:
            session.execute(delete(WebSession))  # which ends the stream
        answer.read()
        connection.close()


def test_websockets_of_ports_are_for_their_own_pages(behind: Behind) -> None:
    def talk(connection: socket.socket, head: bytes) -> None:
        key = next(line for line in head.split(b"\r\n") if line.lower().startswith(b"sec-websocket-key:"))
        accepted = hashlib.sha1(key.partition(b":")[2].strip() + GUID).digest()
        lines = ["HTTP/1.1 101 Switching Protocols", "Upgrade: websocket", "Connection: Upgrade"]
        lines.append(f"Sec-WebSocket-Accept: {base64.b64encode(accepted).decode()}")
        connection.sendall("\r\n".join([*lines, "", ""]).encode() + b"\x81\x05hello\x88\x00")

    with talking(talk) as number:
        port = behind.gateway.opened(number)
        host, browser = behind.enter(port)

        async def use() -> None:
            with pytest.raises(HTTPClientError) as refused:
                await behind.websocket(host, "/", Origin="https://evil.example.org", **browser)
            assert refused.value.code == 403
            own = await behind.websocket(host, "/", Origin=port.address.origin, **browser)
            assert await own.read_message() == "hello"
            own.close()

        in_time(use)
