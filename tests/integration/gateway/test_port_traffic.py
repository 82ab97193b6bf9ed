"""Requests and answers of ports that are hostile, broken, endless or cut off."""

import json
import logging
import socket
import threading
from collections.abc import Callable

import pytest

from tests.systems.port_sites import PortSite, saying, talking

UNREADABLE = "its answer is not HTTP/1.1: its status line or a header cannot be read"
NO_LENGTH = "its Content-Length is not one whole number"


READ_IN_TWO_WAYS = [
    ("POST {p}/ HTTP/1.1\nContent-Length: 1\nTransfer-Encoding: chunked", b"400"),
    ("POST {p}/ HTTP/1.1\nContent-Length: 1\nContent-Length: 2", b"400"),
    ("POST {p}/ HTTP/1.1\nContent-Length: +1", b"400"),
    ("POST {p}/ HTTP/1.1\nContent-Length: 1, 1", b"400"),
    ("POST {p}/ HTTP/1.1\nTransfer-Encoding: chunked, identity", b"501"),
    ("POST {p}/ HTTP/1.1\nTransfer-Encoding: xchunked", b"501"),
    ("GET {p}/ HTTP/1.0", b"505"),
    ("TRACE {p}/ HTTP/1.1", b"405"),
    ("CONNECT {p}/ HTTP/1.1", b"405"),
    ("GET http://jobs.localhost{p}/ HTTP/1.1", b"40"),
    ("GET {p}/../../../../etc HTTP/1.1", b"400"),
    ("GET {p}/a/%2e%2E/..%2f HTTP/1.1", b"400"),
    ("GET {p}/a\\..\\..\\b HTTP/1.1", b"400"),
    ("GET {p}/#x HTTP/1.1", b"400"),
    ("GET {p}/ HTTP/1.1\nX-Bad : 1", b"400"),
    ("GET {p}/ HTTP/1.1\nHost: two.example", b"400"),
    ("GET {p}/ HTTP/1.1\nX: a\x00b", b"400"),
]


def test_requests_that_could_be_read_in_two_ways_are_refused(port_site: PortSite, echo: int) -> None:
    port = port_site.opened(echo)
    for head, status in READ_IN_TWO_WAYS:
        heard = port.raw(head.replace("{p}", port.prefix), b"0\r\n\r\n")

        assert heard.startswith(b"HTTP/1.1 " + status), (head, heard)


def test_a_request_within_a_body_stays_one(port_site: PortSite, echo: int) -> None:
    port = port_site.opened(echo)
    hidden = b"GET /hidden HTTP/1.1\r\nHost: x\r\n\r\n"

    heard = port.raw(f"POST {port.prefix}/ HTTP/1.1\nConnection: close\nContent-Length: {len(hidden)}", hidden)

    assert heard.count(b"HTTP/1.1 200") == 1
    assert json.loads(heard.partition(b"\r\n\r\n")[2])["body"] == hidden.decode()


def test_bodies_in_chunks_are_passed_on_as_they_come(port_site: PortSite, echo: int) -> None:
    port = port_site.opened(echo)

    answer = port.ask("PUT", "/", iter([b"a" * 1000, b"b" * 70_000, b"c"]))

    assert answer.json["body"] == "a" * 1000 + "b" * 70_000 + "c"


def test_a_body_over_the_limit_is_refused_in_words(make_port_site: Callable[..., PortSite], echo: int) -> None:
    port = make_port_site(TRAINYARD_GATEWAY_MOST_PORT_BODY_BYTES="1000").opened(echo)

    assert port.ask("POST", "/", b"x" * 1001).status == 413
    assert port.raw(
        f"POST {port.prefix}/ HTTP/1.1\nTransfer-Encoding: chunked", b"3e9\r\n" + b"x" * 1001 + b"\r\n0\r\n\r\n"
    ).startswith(b"HTTP/1.1 413")
    assert port.ask("POST", "/", b"x" * 1000).status == 200


def test_an_answer_is_passed_on_while_it_comes(port_site: PortSite) -> None:
    more = threading.Event()

    def stream(connection: socket.socket, _: bytes) -> None:
        connection.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nfirst\r\n")
        assert more.wait(20)
        connection.sendall(b"6\r\nsecond\r\n0\r\n\r\n")

    with talking(stream) as number:
        port = port_site.opened(number)
        with socket.create_connection(("127.0.0.1", port_site.port), timeout=20) as browser:
            browser.sendall(
                f"GET {port.prefix}/ HTTP/1.1\r\nHost: {port.address.host}\r\nCookie: {port.cookie}\r\n\r\n".encode()
            )
            heard = b""
            while b"first" not in heard:
                heard += browser.recv(65536)
            more.set()
            while b"second\r\n0\r\n\r\n" not in heard:
                heard += browser.recv(65536)

    assert b"Cache-Control: private" in heard


NO_HTTP = [
    (b"nonsense\r\n\r\n", UNREADABLE),
    (b"HTTP/2 200\r\n\r\n", UNREADABLE),
    (b"HTTP/1.1 200 OK\r\nX: a\rb\r\n\r\n", UNREADABLE),
    (b"HTTP/1.1 200 OK\r\nBad Header: x\r\n\r\n", UNREADABLE),
    (b"HTTP/1.1 200 OK\r\nX: " + b"a" * (70 << 10) + b"\r\n\r\n", "its headers do not end within 65536 bytes"),
    (b"HTTP/1.1 102 Wait\r\n\r\n" * 20, "more than 8 statuses below 200 come before its own"),
    (b"", "it closed the connection"),
    (b"HTTP/1.1 200 OK\r\n", "it closed the connection"),
    (
        b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "it has both Content-Length and Transfer-Encoding",
    ),
    (b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nxx", NO_LENGTH),
    (b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n", NO_LENGTH),
    (b"HTTP/1.1 200 OK\r\nContent-Length: " + b"1" * 5000 + b"\r\n\r\n", NO_LENGTH),
    (b"HTTP/1.1 299 Odd\r\n\r\n", "the status 299 does not exist"),
    (
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n",
        "it switches protocols without being asked to",
    ),
]


def test_answers_that_are_no_http_are_refused(port_site: PortSite, caplog: pytest.LogCaptureFixture) -> None:
    given = [b""]
    with talking(lambda connection, _: connection.sendall(given[0])) as number:
        port = port_site.opened(number)
        for answer, why in NO_HTTP:
            given[0] = answer
            refused = port.ask()

            assert refused.status == 502, answer
            assert why in refused.raw.decode(), answer
            assert not [each for each in caplog.records if each.levelno >= logging.WARNING], answer


def test_an_answer_that_is_cut_off_does_not_look_whole(port_site: PortSite) -> None:
    with talking(saying(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nfirst\r\n")) as number:
        port = port_site.opened(number)
        heard = port.raw(f"GET {port.prefix}/ HTTP/1.1")

    assert heard.startswith(b"HTTP/1.1 200")
    assert not heard.endswith(b"0\r\n\r\n")


def test_what_a_job_answers_speaks_for_its_own_port_only(port_site: PortSite) -> None:
    answer = (
        b"HTTP/1.1 302 Found\r\nLocation: /login?next=/\r\nContent-Length: 0\r\nClear-Site-Data: *\r\n"
        b"Service-Worker-Allowed: /\r\nStrict-Transport-Security: max-age=1\r\nX-Accel-Redirect: /internal\r\n"
        b"Set-Cookie: own=1; Path=/; Domain=localhost; HttpOnly\r\nSet-Cookie: trainyard-port=stolen; Path=/\r\n"
        b"Set-Cookie: =trainyard-session=x\r\nSet-Cookie: __Secure-Trainyard-session=x\r\nX-Own: 1\r\n\r\n"
    )
    with talking(saying(answer)) as number:
        port = port_site.opened(number)
        found = port.ask()

    assert found.status == 302
    assert found.headers["Location"] == f"{port.prefix}/login?next=/"
    assert found.headers.get_all("Set-Cookie") == [f"own=1; HttpOnly; Path={port.prefix}/"]
    assert found.headers["X-Own"] == "1"
    for name in ("Clear-Site-Data", "Service-Worker-Allowed", "Strict-Transport-Security", "X-Accel-Redirect"):
        assert name not in found.headers


@pytest.mark.long
def test_a_flood_to_a_browser_that_reads_nothing_waits_in_the_job(make_port_site: Callable[..., PortSite]) -> None:
    sent = [0]
    full = threading.Event()

    def flood(connection: socket.socket, _: bytes) -> None:
        connection.settimeout(2)
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\n")
        try:
            while sent[0] < 256 << 20:
                sent[0] += connection.send(b"x" * 65536)
        except TimeoutError:
            full.set()

    site = make_port_site()
    with talking(flood) as number:
        port = site.opened(number)
        with socket.create_connection(("127.0.0.1", site.port), timeout=20) as browser:
            browser.sendall(
                f"GET {port.prefix}/ HTTP/1.1\r\nHost: {port.address.host}\r\nCookie: {port.cookie}\r\n\r\n".encode()
            )
            assert full.wait(20)
            assert port.ask(cookie="").status == 401  # others are served

    assert sent[0] < 48 << 20


@pytest.mark.long
def test_a_body_that_the_job_does_not_read_waits_in_the_browser(make_port_site: Callable[..., PortSite]) -> None:
    done = threading.Event()
    site = make_port_site()

    def wait(connection: socket.socket, _: bytes) -> None:
        del connection
        done.wait(20)

    with talking(wait) as number:
        port = site.opened(number)
        with socket.create_connection(("127.0.0.1", site.port), timeout=2) as browser:
            # The kernel else lets it grow: what lies in it has not left the browser.
            browser.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 18)
            browser.sendall(
                f"POST {port.prefix}/ HTTP/1.1\r\nHost: {port.address.host}\r\nCookie: {port.cookie}\r\n"
                f"Content-Length: {256 << 20}\r\n\r\n".encode()
            )
            sent = _sent_until_full(browser)
        done.set()

    assert sent < 48 << 20


def test_a_browser_that_leaves_frees_the_jobs_connection(port_site: PortSite) -> None:
    asked, left = threading.Event(), threading.Event()

    def wait(connection: socket.socket, _: bytes) -> None:
        asked.set()
        if connection.recv(1) == b"":
            left.set()

    with talking(wait) as number:
        port = port_site.opened(number)
        with socket.create_connection(("127.0.0.1", port_site.port), timeout=20) as browser:
            browser.sendall(
                f"GET {port.prefix}/ HTTP/1.1\r\nHost: {port.address.host}\r\nCookie: {port.cookie}\r\n\r\n".encode()
            )
            assert asked.wait(20)
        assert left.wait(20)


def test_an_answer_before_the_body_is_read_reaches_the_browser(port_site: PortSite) -> None:
    with talking(saying(b"HTTP/1.1 413 Content Too Large\r\nContent-Length: 3\r\n\r\nno!")) as number:
        port = port_site.opened(number)
        with socket.create_connection(("127.0.0.1", port_site.port), timeout=20) as browser:
            browser.sendall(
                f"POST {port.prefix}/ HTTP/1.1\r\nHost: {port.address.host}\r\nCookie: {port.cookie}\r\n"
                "Content-Length: 100\r\n\r\n".encode()
            )
            heard = b""
            while not heard.endswith(b"no!"):
                piece = browser.recv(65536)
                assert piece, heard
                heard += piece

    assert heard.startswith(b"HTTP/1.1 413")


def _sent_until_full(browser: socket.socket) -> int:
    sent = 0
    try:
        while sent < 256 << 20:
            sent += browser.send(b"x" * 65536)
    except TimeoutError:
        pass
    return sent
