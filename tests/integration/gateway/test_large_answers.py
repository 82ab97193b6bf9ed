"""Answers that are large enough to pass the gateway without being copied."""

import os
import re
import socket
import threading

import pytest

from app.gateway.interactive.port_splice import LEAST_BYTES
from tests.systems.port_sites import PortSite, saying, talking

LARGE = 5 * LEAST_BYTES


def head(length: int) -> bytes:
    return f"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: {length}\r\n\r\n".encode()


@pytest.mark.parametrize("length", [LEAST_BYTES - 1, LEAST_BYTES, LARGE])
def test_they_arrive_unchanged_and_nothing_behind_them_does(port_site: PortSite, length: int) -> None:
    body = os.urandom(length)
    with talking(saying(head(length) + body + b"more")) as number:
        port = port_site.opened(number)
        heard = port.raw(f"GET {port.prefix}/ HTTP/1.1\nConnection: close")

    said, _, got = heard.partition(b"\r\n\r\n")
    assert got == body
    assert len(re.findall(rb"(?i)^connection: close", said, re.MULTILINE)) == 1


def test_one_that_is_cut_off_does_not_look_whole(port_site: PortSite) -> None:
    with talking(saying(head(LARGE) + bytes(LARGE - 1))) as number:
        port = port_site.opened(number)
        heard = port.raw(f"GET {port.prefix}/ HTTP/1.1")

    assert len(heard.partition(b"\r\n\r\n")[2]) == LARGE - 1


def test_no_body_is_awaited_where_there_is_none(port_site: PortSite) -> None:
    with talking(saying(head(LARGE))) as number:
        port = port_site.opened(number)
        heard = port.raw(f"HEAD {port.prefix}/ HTTP/1.1\nConnection: close")

    assert f"Content-Length: {LARGE}".encode() in heard
    assert heard.endswith(b"\r\n\r\n")


@pytest.mark.long
def test_one_that_the_browser_does_not_read_waits_in_the_job_and_ends_with_the_browser(port_site: PortSite) -> None:
    sent, full, left = [0], threading.Event(), threading.Event()

    def flood(connection: socket.socket, _: bytes) -> None:
        connection.settimeout(2)
        connection.sendall(head(256 << 20))
        try:
            while True:
                sent[0] += connection.send(b"x" * 65536)
        except TimeoutError:
            full.set()
        connection.settimeout(20)
        try:
            while True:
                connection.sendall(b"x" * 65536)
        except ConnectionError:
            left.set()

    with talking(flood) as number:
        port = port_site.opened(number)
        with socket.create_connection(("127.0.0.1", port_site.port), timeout=20) as browser:
            browser.sendall(
                f"GET {port.prefix}/ HTTP/1.1\r\nHost: {port.address.host}\r\nCookie: {port.cookie}\r\n\r\n".encode()
            )
            assert full.wait(20)
            assert port.ask(cookie="").status == 401  # others are served
        assert left.wait(20)

    assert sent[0] < 48 << 20
