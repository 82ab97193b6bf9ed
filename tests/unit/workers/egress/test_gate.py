"""A gate between real sockets: what it connects, what it refuses, and what it says of it."""

import asyncio
import contextlib
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from app.domain.spec.locations.egress import EVERYWHERE
from app.domain.spec.locations.outbound_proxy import OutboundProxy
from tests.doubles.outbound_proxy import company_proxy
from tests.doubles.tls import self_signed
from tests.systems.system import wait_for
from workers.egress import gate
from workers.egress.gate import EgressConnection, Gate
from workers.egress.proxy_request import parse

NAMES = {
    "service.example": ["127.0.0.1"],
    "sub.service.example": ["127.0.0.1"],
    "metadata.example": ["169.254.169.254"],
    "inside.example": ["10.1.2.3"],
    "nothing.example": [],
}


async def resolver(host: str, _: int) -> list[str]:
    if host not in NAMES:
        raise OSError("unknown name")
    return NAMES[host]


class Site:
    """A service that answers with what it got, over TLS or not."""

    def __init__(self, context: ssl.SSLContext | None) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._context = context
        self.got: list[bytes] = []
        self._threads = [threading.Thread(target=self._serve)]
        self._threads[0].start()

    def _serve(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                self._threads.append(threading.Thread(target=self._answer, args=[connection]))
                self._threads[-1].start()

    def _answer(self, raw: socket.socket) -> None:
        with contextlib.suppress(OSError):
            connection = self._context.wrap_socket(raw, server_side=True) if self._context else raw
            with connection:
                data = connection.recv(65536)
                self.got.append(data)
                connection.sendall(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\ngot " + data[:20])

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join()
        self._listener.close()


async def settled() -> None:
    """Let connections end, and their transports close."""
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    await asyncio.sleep(0.01)


class Opened:
    """A running gate, and the connections that it reported."""

    def __init__(self, services: list[str], private: tuple[str, ...], proxy: OutboundProxy | None = None) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self.connections: list[EgressConnection] = []
        self._loop = asyncio.new_event_loop()
        served = Gate(services, private, self._note, proxy=proxy, resolver=resolver).serve(self._listener)
        self._serving = self._loop.create_task(served)
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        with contextlib.suppress(asyncio.CancelledError):
            self._loop.run_until_complete(self._serving)
        self._loop.run_until_complete(settled())
        self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        self._loop.close()

    def _note(self, connection: EgressConnection, *, has_ended: bool) -> None:
        if has_ended:
            self.connections.append(connection)

    def ended(self, number: int) -> list[EgressConnection]:
        wait_for(lambda: len(self.connections) >= number, seconds=5, what="the connections have ended")
        return self.connections

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._serving.cancel)
        self._thread.join()

    def ask(self, head: str, then: bytes = b"") -> bytes:
        """Everything that comes back."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=5) as client:
            client.sendall(head.encode() + b"\r\n\r\n")
            if then:
                client.recv(1000)
                client.sendall(then)
            return b"".join(iter(lambda: client.recv(65536), b""))

    def tunnel(self, target: str, name: str, port: int) -> bytes:
        """What a service answers over TLS, to a client that connects to one name and asks for another."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        with socket.create_connection(("127.0.0.1", self.port), timeout=5) as client:
            client.sendall(f"CONNECT {target}:{port} HTTP/1.1\r\n\r\n".encode())
            answer = client.recv(1000)
            if b" 200 " not in answer:
                return answer
            with context.wrap_socket(client, server_hostname=name) as tls:
                tls.sendall(b"hello")
                return tls.recv(1000)


@pytest.fixture
def opened() -> Iterator[Callable[..., Opened]]:
    gates: list[Opened] = []

    def make(*services: str, private: tuple[str, ...] = ("127.0.0.0/8",), proxy: OutboundProxy | None = None) -> Opened:
        gates.append(Opened([*services], private, proxy))
        return gates[-1]

    yield make
    for each in gates:
        each.close()


@pytest.fixture
def site(tmp_path: Any) -> Iterator[Callable[..., Site]]:
    sites: list[Site] = []

    def make(*, tls: bool) -> Site:
        context = None
        if tls:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(self_signed(tmp_path))
        sites.append(Site(context))
        return sites[-1]

    yield make
    for each in sites:
        each.close()


def test_tunnel_leads_to_a_listed_service(opened, site):
    service = site(tls=True)
    gate = opened(f"service.example:{service.port}", f"*.service.example:{service.port}")

    for name in ("service.example", "sub.service.example"):
        assert gate.tunnel(name, name, service.port).endswith(b"got hello")

    assert [(each.host, each.port, each.refused) for each in gate.ended(2)] == [
        ("service.example", service.port, ""),
        ("sub.service.example", service.port, ""),
    ]
    assert all(each.sent > 200 and each.received > 200 for each in gate.ended(2))


def test_plain_request_leads_to_a_listed_service(opened, site):
    service = site(tls=False)
    gate = opened(f"service.example:{service.port}")

    answer = gate.ask(f"GET http://service.example:{service.port}/a HTTP/1.1\r\nHost: metadata.example")

    assert answer.endswith(b"got GET /a HTTP/1.1\r\nHos")
    assert f"Host: service.example:{service.port}".encode() in service.got[0]
    assert b"metadata" not in service.got[0]


def test_tunnels_lead_through_the_proxy_of_the_operator(opened, site):
    service = site(tls=True)
    with company_proxy() as company:
        company.login = "node:secret"
        port = int(company.url.rpartition(":")[2])
        proxy = OutboundProxy(host="127.0.0.1", port=port, user="node", password="secret", direct=("service.example",))
        gate = opened(EVERYWHERE, private=("127.0.0.1",), proxy=proxy)

        for name in ("unknown.example", "service.example"):  # the second one is reached directly
            assert gate.tunnel(name, name, service.port).endswith(b"got hello")
        assert b"leads to a private address" in gate.tunnel("inside.example", "inside.example", service.port)
        company.status = "403 Forbidden"
        refused = gate.tunnel("other.example", "other.example", service.port)

    assert b"502 Bad Gateway: the proxy of TRAINYARD_FETCH_PROXY answers 403" in refused
    assert company.asked == [f"{name}.example:{service.port}" for name in ("unknown", "other")]


def test_nothing_follows_the_body_of_a_plain_request(opened, site):
    service = site(tls=False)
    gate = opened(f"service.example:{service.port}")
    head = f"POST http://service.example:{service.port}/ HTTP/1.1\r\nContent-Length: 4"

    gate.ask(f"{head}\r\n\r\nbodyGET /second HTTP/1.1\r\nHost: hidden.example")

    forwarded = parse(f"{head}\r\n\r\n".encode()).forwarded
    assert gate.ended(1)[0].sent == len(forwarded) + len(b"body")


@pytest.mark.parametrize(
    ("target", "why"),
    [
        ("other.example:{port}", "not in the list"),
        ("service.example:1", "not in the list"),
        ("evilservice.example:{port}", "not in the list"),
        ("127.0.0.1:{port}", "not in the list"),
        ("sub.service.example:{port}", "not in the list"),
        ("inside.example:{port}", "leads to a private address"),
        ("metadata.example:{port}", "leads to a private address"),
        ("nothing.example:{port}", "leads to a private address"),
        ("unknown.example:{port}", "could not be resolved"),
    ],
)
def test_other_places_are_refused_with_the_reason(opened, site, target, why):
    port = site(tls=True).port
    listed = ("service", "inside", "metadata", "nothing", "unknown")
    gate = opened(*(f"{name}.example:{port}" for name in listed))

    for head in (f"CONNECT {target} HTTP/1.1", f"GET http://{target}/ HTTP/1.1"):
        answer = gate.ask(head.format(port=port))
        assert answer.startswith((b"HTTP/1.1 403 ", b"HTTP/1.1 502 "))
        assert why.encode() in answer.split(b"\r\n")[0]
        assert answer.endswith(b"\n")

    assert [why in each.refused for each in gate.ended(2)] == [True, True]
    assert not any(each.received for each in gate.ended(2))


def test_private_address_needs_the_operators_word(opened, site):
    port = site(tls=True).port

    answer = opened(f"service.example:{port}", private=()).ask(f"CONNECT service.example:{port} HTTP/1.1")

    assert b"leads to a private address" in answer


def test_tunnel_for_another_server_than_the_listed_one_is_refused(opened, site):
    service = site(tls=True)
    gate = opened(f"service.example:{service.port}")

    with pytest.raises(ssl.SSLError):
        gate.tunnel("service.example", "hidden.example", service.port)

    assert "for another server: hidden.example" in gate.ended(1)[0].refused
    assert b"".join(service.got) == b""


def test_tunnel_without_tls_is_refused(opened, site):
    service = site(tls=False)
    gate = opened(f"service.example:{service.port}")

    answer = gate.ask(f"CONNECT service.example:{service.port} HTTP/1.1", then=b"SSH-2.0-client\r\n")

    assert b"no TLS connection" in answer
    assert b"".join(service.got) == b""


def test_requests_that_no_proxy_serves_are_refused(opened):
    gate = opened()

    assert b"400 Bad Request" in gate.ask("GET / HTTP/1.1")
    assert b"400 Bad Request" in gate.ask("GET http://x/ HTTP/1.1\r\nA: " + "b" * 40_000)


def test_number_of_connections_is_limited(opened, monkeypatch):
    monkeypatch.setattr(gate, "MOST_CONNECTIONS", 2)
    served = opened()
    with contextlib.ExitStack() as stack:
        for _ in range(2):
            stack.enter_context(socket.create_connection(("127.0.0.1", served.port), timeout=5))
        answer = served.ask("CONNECT x:1 HTTP/1.1")

    assert b"503 Service Unavailable" in answer


def test_silent_connections_end(opened, site, monkeypatch):
    monkeypatch.setattr(gate, "HEAD_SECONDS", 0.1)
    service = site(tls=True)
    served = opened(f"service.example:{service.port}")

    with socket.create_connection(("127.0.0.1", served.port), timeout=5) as client:
        assert b"408 Request Timeout" in client.recv(1000)
    with socket.create_connection(("127.0.0.1", served.port), timeout=5) as client:
        client.sendall(f"CONNECT service.example:{service.port} HTTP/1.1\r\n\r\n".encode())
        assert b"200" in client.recv(1000)
        assert b"nothing came" in client.recv(1000)
