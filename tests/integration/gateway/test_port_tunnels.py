"""What follows the switch to a WebSocket: bytes that pass the gateway both ways without being copied or read."""

import base64
import hashlib
import os
import re
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from sqlalchemy import select

from app.domain.lifecycle.states import JobState
from app.host.pipes import Pipes
from app.models import Job
from tests.systems.port_sites import PortSite, talking
from tests.systems.system import wait_for

GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"  # RFC 6455, section 1.3
SECONDS = 20
MUCH = 12 << 20
BUFFERS = ("rmem", "wmem")  # tcp(7): least, default and most bytes of one connection


def switched(heard: bytes) -> bytes:
    """The job's answer that accepts a WebSocket."""
    found = re.search(rb"(?i)sec-websocket-key: ([^\r]+)", heard)
    assert found is not None
    accepted = base64.b64encode(hashlib.sha1(found[1] + GUID, usedforsecurity=False).digest())
    return (
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        b"Sec-WebSocket-Accept: %b\r\n\r\n" % accepted
    )


@contextmanager
def tunnel(site: PortSite, use: Callable[[socket.socket], None], first: bytes = b"") -> Iterator[socket.socket]:
    """The browser's end of a WebSocket, after the switch; ``use`` has the job's, ``first`` comes with its answer."""

    def talk(connection: socket.socket, heard: bytes) -> None:
        connection.settimeout(SECONDS)
        connection.sendall(switched(heard) + first)
        use(connection)

    with talking(talk) as number:
        port = site.opened(number)
        lines = [f"GET {port.prefix}/ HTTP/1.1", f"Host: {port.address.host}", f"Cookie: {port.cookie}"]
        lines += ["Upgrade: websocket", "Connection: Upgrade", "Sec-WebSocket-Version: 13"]
        lines += [f"Sec-WebSocket-Key: {base64.b64encode(os.urandom(16)).decode()}", "", ""]
        with socket.create_connection(("127.0.0.1", site.port), timeout=SECONDS) as browser:
            browser.sendall("\r\n".join(lines).encode())
            heard = b""
            while not heard.endswith(b"\r\n\r\n"):
                piece = browser.recv(1)
                assert piece, heard
                heard += piece
            assert heard.startswith(b"HTTP/1.1 101 ")
            yield browser


def end_jobs(site: PortSite) -> None:
    with site.db.write() as session:
        for job in session.scalars(select(Job)):
            job.status = JobState.COMPLETED


def all_of(connection: socket.socket) -> bytes:
    heard = bytearray()
    while piece := connection.recv(1 << 16):
        heard += piece
    return bytes(heard)


def test_a_silent_one_holds_no_pipe(port_site: PortSite, monkeypatch: pytest.MonkeyPatch) -> None:
    held, taken, more = set[tuple[int, int]](), 0, threading.Event()
    take, give_back = Pipes.take, Pipes.give_back

    def takes(pipes: Pipes) -> tuple[int, int]:
        nonlocal taken
        taken += 1
        held.add(pipe := take(pipes))
        return pipe

    def gives_back(pipes: Pipes, pipe: tuple[int, int], *, is_empty: bool) -> None:
        held.remove(pipe)
        give_back(pipes, pipe, is_empty=is_empty)

    monkeypatch.setattr(Pipes, "take", takes)
    monkeypatch.setattr(Pipes, "give_back", gives_back)

    def answers(connection: socket.socket) -> None:
        connection.sendall(connection.recv(100))
        more.wait(SECONDS)

    with tunnel(port_site, answers) as browser:
        browser.sendall(b"hello")
        assert browser.recv(100) == b"hello"
        wait_for(lambda: not held, seconds=SECONDS, what="the pipes")
        more.set()
    assert taken >= 2


def test_what_came_with_the_switch_and_after_it_arrives_in_order(port_site: PortSite) -> None:
    def answers(connection: socket.socket) -> None:
        connection.sendall(b"second " + connection.recv(100))

    with tunnel(port_site, answers, first=b"first ") as browser:
        browser.sendall(b"third")
        assert all_of(browser) == b"first second third"


@pytest.mark.long
@pytest.mark.parametrize("slow", ["neither", "browser", "job"])
def test_much_goes_both_ways_at_once_and_each_side_may_end_first(port_site: PortSite, slow: str) -> None:
    asked, answered = os.urandom(MUCH), os.urandom(MUCH)
    got: list[bytes] = []
    read = threading.Event()

    def both(connection: socket.socket) -> None:
        sending = threading.Thread(target=lambda: connection.sendall(answered))
        sending.start()
        if slow == "job":
            read.wait(0.5)
        got.append(all_of(connection))
        sending.join()

    with tunnel(port_site, both) as browser:
        if slow == "browser":
            read.wait(0.5)

        def send() -> None:
            browser.sendall(asked)
            browser.shutdown(socket.SHUT_WR)

        sending = threading.Thread(target=send)
        sending.start()
        heard = all_of(browser)
        sending.join()

    assert heard == answered
    assert got == [asked]


def test_a_browser_that_sends_no_more_gets_what_the_job_still_says(port_site: PortSite) -> None:
    with tunnel(port_site, lambda connection: connection.sendall(all_of(connection)[::-1])) as browser:
        browser.sendall(b"abc")
        browser.shutdown(socket.SHUT_WR)
        assert all_of(browser) == b"cba"


def test_a_job_that_sends_no_more_gets_what_the_browser_still_says(port_site: PortSite) -> None:
    got: list[bytes] = []

    def ends(connection: socket.socket) -> None:
        connection.shutdown(socket.SHUT_WR)
        got.append(all_of(connection))

    with tunnel(port_site, ends) as browser:
        assert browser.recv(1) == b""
        browser.sendall(b"abc")
        browser.shutdown(socket.SHUT_WR)
        assert browser.recv(1) == b""

    assert got == [b"abc"]


@pytest.mark.parametrize("how", ["vanishes", "attempt"])
def test_its_end_reaches_a_job_that_says_nothing(port_site: PortSite, how: str) -> None:
    ended = threading.Event()

    def waits(connection: socket.socket) -> None:
        with suppress(OSError):
            all_of(connection)
        ended.set()

    with tunnel(port_site, waits) as browser:
        browser.sendall(b"abc")
        if how == "attempt":
            end_jobs(port_site)
            with suppress(ConnectionResetError):
                assert browser.recv(1) == b""
            assert ended.wait(SECONDS)
    assert ended.wait(SECONDS)


@pytest.mark.long
def test_a_browser_that_reads_nothing_holds_up_its_job_and_no_other(port_site: PortSite) -> None:
    sent, full = [0], threading.Event()

    def floods(connection: socket.socket) -> None:
        connection.settimeout(2)
        try:
            while sent[0] < 1 << 30:
                sent[0] += connection.send(b"x" * 65536)
        except OSError:
            full.set()

    with tunnel(port_site, floods) as _:
        assert full.wait(SECONDS)
        with tunnel(port_site, lambda connection: connection.sendall(b"quick")) as other:
            assert all_of(other) == b"quick"

    # No more than the kernel may hold on the way: from the job to the relay, to the gateway, and to the browser.
    assert sent[0] < 3 * sum(int(Path(f"/proc/sys/net/ipv4/tcp_{each}").read_text().split()[2]) for each in BUFFERS)
