"""Clients that leave behind what a job does not take of them, so that no end of their connection arrives."""

import asyncio
import contextlib
import socket
import threading
import time
from collections.abc import Callable

import pytest

from app.gateway.interactive import open_session, port_exchange
from tests.systems.port_sites import PortSite, talking
from tests.systems.session_sites import SessionSite
from trainyard.protocol.interactive import STDIN

SOON = 10.0


@pytest.mark.long
def test_a_client_that_closes_behind_unread_input_is_missed(
    make_session_site: Callable[..., SessionSite], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(open_session, "STALLED_PING_SECONDS", 0.5)
    site = make_session_site()
    site.serve()
    session_id, ticket = site.sandbox().session("sleep", "60")

    async def scenario() -> None:
        connection = await site.connect(session_id, ticket)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(2):
                while True:
                    await connection.write_message(bytes([STDIN]) + b"x" * 60_000, binary=True)
        assert connection.protocol is not None
        stream = connection.protocol.stream
        assert stream is not None
        stream.close()  # as the kernel does for a client that was killed
        assert await connection.read_message() is None
        connection.close()

    asyncio.run(scenario())
    left_at = time.monotonic()
    assert site.ended(session_id).end_reason == "the client has closed the connection"
    assert time.monotonic() - left_at < SOON


@pytest.mark.long
def test_a_body_of_which_the_job_takes_nothing_is_given_up(
    make_port_site: Callable[..., PortSite], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(port_exchange, "STALLED_SECONDS", 1.5)
    done = threading.Event()

    def reads_nothing(connection: socket.socket, _: bytes) -> None:
        del connection
        done.wait(SOON)

    site = make_port_site()
    with talking(reads_nothing) as number:
        port = site.opened(number)
        with socket.create_connection(("127.0.0.1", site.port), timeout=SOON) as browser:
            browser.sendall(
                f"POST {port.prefix}/ HTTP/1.1\r\nHost: {port.address.host}\r\nCookie: {port.cookie}\r\n"
                f"Content-Length: {256 << 20}\r\n\r\n".encode()
            )
            threading.Thread(target=_sent_on, args=(browser,), daemon=True).start()
            heard = browser.recv(65536)
        done.set()

    assert heard.startswith(b"HTTP/1.1 504")
    assert b"the job has taken nothing of the body for 1.5 s" in heard


def _sent_on(browser: socket.socket) -> None:
    try:
        while True:
            browser.sendall(b"x" * 65536)
    except OSError:
        return
