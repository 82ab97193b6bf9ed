"""Bodies of requests that are large enough to pass the gateway without being copied."""

import errno
import hashlib
import os
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from tornado.iostream import IOStream

from app.domain.lifecycle.states import JobState
from app.gateway.interactive import port_exchange, port_splice
from app.gateway.interactive.port_splice import LEAST_BYTES, DetachedConnection
from app.host.pipes import Pipes
from tests.systems.port_sites import PortSite, ServedPort, end_job, saying, talking

LARGE = 64 << 20
OK = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b"


def head(port: ServedPort, length: int, *more: str) -> bytes:
    lines = [f"POST {port.prefix}/ HTTP/1.1", f"Host: {port.address.host}", f"Cookie: {port.cookie}", *more]
    return "\r\n".join([*lines, f"Content-Length: {length}", "", ""]).encode()


def hashes(connection: socket.socket, heard: bytes, *, pause: float = 0.0) -> None:
    """Read the whole body, and answer with its length and hash; with a pause after each of the first pieces."""
    said, _, first = heard.partition(b"\r\n\r\n")
    length = int(next(line for line in said.split(b"\r\n") if line.startswith(b"Content-Length")).split(b":")[1])
    found, got, pieces = hashlib.sha256(first), len(first), 0
    while got < length and (piece := connection.recv(1 << 20)):
        found.update(piece)
        got, pieces = got + len(piece), pieces + 1
        if pause and pieces < 10:
            time.sleep(pause)
    answer = f"{got} {found.hexdigest()}".encode()
    connection.sendall(OK % (len(answer), answer))


def connected(site: PortSite) -> socket.socket:
    return socket.create_connection(("127.0.0.1", site.port), timeout=30)


def all_of(browser: socket.socket) -> bytes:
    heard = b""
    with suppress(ConnectionResetError):
        while piece := browser.recv(1 << 16):
            heard += piece
    return heard


@pytest.mark.parametrize("length", [LEAST_BYTES - 1, LEAST_BYTES, pytest.param(LARGE, marks=pytest.mark.long)])
def test_they_arrive_unchanged(port_site: PortSite, length: int) -> None:
    body = os.urandom(1 << 20) * (length // (1 << 20) + 1)
    with talking(hashes) as number:
        answer = port_site.opened(number).ask("POST", "/", body[:length])

    assert answer.status == 200
    assert answer.raw.decode() == f"{length} {hashlib.sha256(body[:length]).hexdigest()}"


def test_a_job_that_reads_slowly_gets_all(port_site: PortSite) -> None:
    body = os.urandom(16 << 20)
    with talking(lambda connection, heard: hashes(connection, heard, pause=0.02)) as number:
        answer = port_site.opened(number).ask("PUT", "/", body)

    assert answer.raw.decode() == f"{len(body)} {hashlib.sha256(body).hexdigest()}"


def test_a_client_that_sends_no_more_gets_the_answer(port_site: PortSite) -> None:
    with talking(hashes) as number:
        port = port_site.opened(number)
        with connected(port_site) as browser:
            browser.sendall(head(port, LEAST_BYTES) + bytes(LEAST_BYTES))
            browser.shutdown(socket.SHUT_WR)
            heard = all_of(browser)

    assert heard.endswith(f"{LEAST_BYTES} {hashlib.sha256(bytes(LEAST_BYTES)).hexdigest()}".encode())
    assert b"Connection: close" in heard


def test_a_client_that_waits_for_it_is_asked_for_the_body(port_site: PortSite) -> None:
    with talking(hashes) as number:
        port = port_site.opened(number)
        with connected(port_site) as browser:
            browser.sendall(head(port, LEAST_BYTES, "Expect: 100-continue"))
            assert browser.recv(1000) == b"HTTP/1.1 100 Continue\r\n\r\n"
            browser.sendall(bytes(LEAST_BYTES))
            assert all_of(browser).startswith(b"HTTP/1.1 200 OK\r\n")


def test_an_answer_without_a_length_comes_in_chunks_while_the_body_does(port_site: PortSite) -> None:
    more = threading.Event()

    def streams(connection: socket.socket, _: bytes) -> None:
        connection.sendall(b"HTTP/1.1 200 OK\r\n\r\nfirst")
        assert more.wait(20)
        connection.sendall(b"second")

    with talking(streams) as number:
        port = port_site.opened(number)
        with connected(port_site) as browser:
            browser.sendall(head(port, LARGE) + b"x")
            heard = b""
            while not heard.endswith(b"5\r\nfirst\r\n"):
                piece = browser.recv(1 << 16)
                assert piece, heard
                heard += piece
            browser.sendall(b"y")
            more.set()
            rest = all_of(browser)

    assert rest == b"6\r\nsecond\r\n0\r\n\r\n"


def test_a_refusal_of_the_job_before_the_body_reaches_the_browser(port_site: PortSite) -> None:
    with talking(saying(b"HTTP/1.1 413 Content Too Large\r\nContent-Length: 3\r\n\r\nno!")) as number:
        port = port_site.opened(number)
        with connected(port_site) as browser:
            browser.sendall(head(port, LARGE))
            heard = all_of(browser)

    assert heard.startswith(b"HTTP/1.1 413")
    assert heard.endswith(b"no!")


def test_an_answer_counts_also_when_the_job_closes_while_the_body_comes(port_site: PortSite) -> None:
    def refuses(connection: socket.socket, _: bytes) -> None:
        connection.sendall(b"HTTP/1.1 413 Content Too Large\r\nContent-Length: 3\r\nConnection: close\r\n\r\nno!")

    with talking(refuses) as number:
        port = port_site.opened(number)
        for _ in range(20):
            with connected(port_site) as browser:
                with suppress(OSError):
                    browser.sendall(head(port, LARGE) + bytes(8 << 20))
                heard = all_of(browser)
            assert heard.startswith(b"HTTP/1.1 413")
            assert heard.endswith(b"no!")


def scarce(*_: object) -> Any:
    raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))


@pytest.mark.parametrize("where", ["connection", "answering", "pipe"])
def test_one_for_which_no_file_may_be_opened_ends(
    port_site: PortSite, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    begun, ended = threading.Event(), threading.Event()

    def reads(connection: socket.socket, _: bytes) -> None:
        begun.set()
        with suppress(OSError):
            while connection.recv(1 << 16):
                pass
        ended.set()

    def scarce_once_asked(*_: object) -> Any:
        begun.wait(20)  # a reset would overtake the head
        scarce()

    with talking(reads) as number:
        port = port_site.opened(number)
        places = {
            "connection": (port_splice, "taken"),
            "answering": (port_exchange, "Answering"),
            "pipe": (Pipes, "take"),
        }
        monkeypatch.setattr(*places[where], scarce_once_asked)
        with connected(port_site) as browser:
            browser.sendall(head(port, LARGE))
            heard = all_of(browser)
        assert ended.wait(20)

    assert heard.startswith(b"HTTP/1.1 503") is (where == "pipe"), heard
    assert (b"retry later" in heard) is (where == "pipe")


@pytest.mark.parametrize("whose", ["job", "browser"])
def test_an_answer_for_which_no_file_may_be_opened_ends(
    port_site: PortSite, monkeypatch: pytest.MonkeyPatch, whose: str
) -> None:
    ended, take = threading.Event(), port_splice.taken
    fails = iter([True] if whose == "job" else [False, True])

    def take_or_fail(stream: IOStream) -> DetachedConnection:
        if next(fails):
            scarce()
        return take(stream)

    def answers(connection: socket.socket, _: bytes) -> None:
        connection.settimeout(20)
        with suppress(ConnectionError):
            connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % LARGE + bytes(LARGE))
            connection.recv(1)
        ended.set()

    with talking(answers) as number:
        port = port_site.opened(number)
        monkeypatch.setattr(port_splice, "taken", take_or_fail)
        heard = port.raw(f"GET {port.prefix}/ HTTP/1.1")
        assert ended.wait(20)

    assert heard.startswith(b"HTTP/1.1 503" if whose == "job" else b"HTTP/1.1 200")
    assert (b"retry later" in heard) is (whose == "job")
    assert len(heard.partition(b"\r\n\r\n")[2]) < LARGE


def test_one_over_the_limit_is_refused_in_words(make_port_site: Callable[..., PortSite]) -> None:
    port = make_port_site(TRAINYARD_GATEWAY_MOST_PORT_BODY_BYTES=str(2 << 20)).opened(1)

    assert port.raw(f"POST {port.prefix}/ HTTP/1.1\nContent-Length: {(2 << 20) + 1}").startswith(b"HTTP/1.1 413")


def test_a_job_that_ends_in_the_middle_is_named(port_site: PortSite) -> None:
    with talking(lambda connection, _: connection.close()) as number:
        port = port_site.opened(number)
        with connected(port_site) as browser:
            browser.sendall(head(port, LARGE) + bytes(1 << 10))
            heard = all_of(browser)

    assert heard.startswith(b"HTTP/1.1 502")
    assert b"it closed the connection" in heard


class ReadsAll:
    """A job that says nothing."""

    def __init__(self) -> None:
        self.begun, self.ended = threading.Event(), threading.Event()

    def __call__(self, connection: socket.socket, _: bytes) -> None:
        self.begun.set()
        with suppress(OSError):
            while connection.recv(1 << 16):
                pass
        self.ended.set()


def test_the_end_of_the_attempt_ends_it(port_site: PortSite) -> None:
    reads = ReadsAll()
    with talking(reads) as number:
        port = port_site.opened(number)
        with connected(port_site) as browser:
            browser.sendall(head(port, LARGE) + bytes(2 << 20))
            assert reads.begun.wait(20)
            end_job(port_site, port.address.job_id, status=JobState.COMPLETED)
            assert all_of(browser) == b""
            assert reads.ended.wait(20)


@pytest.mark.parametrize("how", ["ends", "vanishes"])
def test_a_browser_that_leaves_in_the_middle_ends_the_request(port_site: PortSite, how: str) -> None:
    reads = ReadsAll()
    with talking(reads) as number:
        port = port_site.opened(number)
        with connected(port_site) as browser:
            browser.sendall(head(port, LARGE) + bytes(2 << 20))
            assert reads.begun.wait(20)
            if how == "ends":
                browser.shutdown(socket.SHUT_WR)
                assert reads.ended.wait(20)
        assert reads.ended.wait(20)


@pytest.mark.long
def test_one_that_the_job_does_not_read_waits_in_the_browser_and_ends_with_it(port_site: PortSite) -> None:
    sent, left = 0, threading.Event()

    def deaf(connection: socket.socket, _: bytes) -> None:
        wait_until_full.wait(30)
        with suppress(OSError):
            while connection.recv(1 << 20):
                pass
        left.set()

    wait_until_full = threading.Event()
    with talking(deaf) as number:
        port = port_site.opened(number)
        with socket.create_connection(("127.0.0.1", port_site.port), timeout=2) as browser:
            browser.sendall(head(port, 256 << 20))
            with suppress(TimeoutError):
                while sent < 256 << 20:
                    sent += browser.send(b"x" * 65536)
            assert port.ask(cookie="").status == 401  # others are served
        wait_until_full.set()
        assert left.wait(20)

    assert sent < 48 << 20
