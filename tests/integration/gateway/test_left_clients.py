"""Clients that leave while nothing is read for them: they are missed soon, and nothing of theirs stays open."""

import asyncio
import contextlib
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from tests.systems.port_sites import PortSite
from tests.systems.session_sites import SessionSite
from tests.systems.system import wait_for

SOON = 15.0
PIECE = b"x" * 60_000
FILL_SECONDS = 2.0


def open_files() -> int:
    """Of session servers and relays."""
    ours = psutil.Process().children()
    return sum(each.num_fds() for each in ours if {"workers.relay", "workers.rank.sessions"} & set(each.cmdline()))


@contextmanager
def deaf_server() -> Iterator[tuple[int, list[socket.socket]]]:
    """The port of a server that reads nothing, and its connections."""
    connections: list[socket.socket] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            with contextlib.suppress(OSError):
                while True:
                    connections.append(listener.accept()[0])

        thread = threading.Thread(target=serve, name="deaf")
        thread.start()
        try:
            yield listener.getsockname()[1], connections
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()
            for each in connections:
                each.close()


async def _fill(site: SessionSite, session_id: str, ticket: str, *, head: bytes) -> int:
    """Send until nothing is taken any more, and reset the connection; what was open then."""
    connection = await site.connect(session_id, ticket)
    while True:
        sent = asyncio.ensure_future(connection.write_message(head + PIECE, binary=True))
        if not (await asyncio.wait({sent}, timeout=FILL_SECONDS))[0]:
            break
    assert connection.protocol is not None
    stream = connection.protocol.stream
    assert stream is not None
    stream.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    found = open_files()
    stream.close()
    connection.close()
    await asyncio.gather(sent, return_exceptions=True)
    return found


@pytest.mark.long
def test_a_client_that_leaves_a_command_which_reads_nothing(make_session_site: Callable[..., SessionSite]) -> None:
    site = make_session_site()
    site.serve()
    sandbox = site.sandbox()
    session_id, ticket = sandbox.session("sleep", "1000")

    during = asyncio.run(_fill(site, session_id, ticket, head=b"\0"))

    wait_for(lambda: site.row(session_id).ended_at, seconds=40, what="its end")
    assert site.row(session_id).end_reason == "the client has closed the connection"
    wait_for(lambda: not psutil.Process(sandbox.pid).children(), seconds=SOON, what="the command has ended")
    wait_for(lambda: open_files() <= during - 2, seconds=SOON, what="nothing is open")


@pytest.mark.long
def test_a_client_that_leaves_a_forwarded_port_which_reads_nothing(
    make_session_site: Callable[..., SessionSite],
) -> None:
    site = make_session_site()
    site.serve()
    sandbox = site.sandbox()
    with deaf_server() as (port, _):
        session_id, ticket = sandbox.forward(port)

        during = asyncio.run(_fill(site, session_id, ticket, head=b""))

        wait_for(lambda: site.row(session_id).ended_at, seconds=SOON, what="its end")
        wait_for(lambda: open_files() <= during - 2, seconds=SOON, what="nothing is open")


def test_last_bytes_of_a_client_that_leaves_arrive(make_session_site: Callable[..., SessionSite]) -> None:
    site = make_session_site()
    site.serve()
    heard: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            connection, _ = listener.accept()
            with connection, connection.makefile("rb") as file:
                heard.append(file.read())

        thread = threading.Thread(target=serve, name="listens")
        thread.start()
        session_id, ticket = site.sandbox().forward(listener.getsockname()[1])

        async def scenario() -> None:
            connection = await site.connect(session_id, ticket)
            for _ in range(20):
                await connection.write_message(PIECE, binary=True)
            connection.close()
            assert await connection.read_message() is None

        asyncio.run(scenario())
        thread.join(SOON)

    assert heard == [20 * PIECE]
    assert site.ended(session_id).bytes_in == 20 * len(PIECE)


@pytest.mark.long
def test_a_browser_that_resets_an_unread_upload_frees_its_connections(make_port_site: Callable[..., PortSite]) -> None:
    site = make_port_site()
    with deaf_server() as (number, _):
        port = site.opened(number)
        head = f"POST {port.prefix}/ HTTP/1.1\r\nHost: {port.address.host}\r\nCookie: {port.cookie}\r\n"
        with socket.create_connection(("127.0.0.1", site.port), timeout=FILL_SECONDS) as connection:
            connection.sendall(f"{head}Content-Length: 1000000000\r\n\r\n".encode())
            with contextlib.suppress(TimeoutError):
                while True:
                    connection.sendall(PIECE)
            during = open_files()
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

        wait_for(lambda: open_files() <= during - 2, seconds=45, what="nothing is open")


def test_nothing_of_a_page_s_connections_stays(make_port_site: Callable[..., PortSite], echo: int) -> None:
    site = make_port_site()
    port = site.opened(echo)
    ours = Path("/proc/self/fd")
    port.ask()
    before = len(list(ours.iterdir()))

    for _ in range(30):
        assert port.ask().status == 200

    wait_for(lambda: len(list(ours.iterdir())) <= before, seconds=SOON, what="nothing is open")
