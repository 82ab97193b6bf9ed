"""Whether an engine answers its health check, as its supervisor sees it through the relay."""

import contextlib
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from workers.supervisor.serving.probe import NoAnswer, probe


@contextmanager
def relay(*answers: bytes) -> Iterator[int]:
    """Answers one client piece by piece, each after something was said; its port."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            client, _ = listener.accept()
            with client, contextlib.suppress(ConnectionError):
                for answer in answers:
                    client.recv(1000)
                    client.sendall(answer)
                client.recv(1000)

        thread = threading.Thread(target=serve)
        thread.start()
        yield listener.getsockname()[1]
        thread.join(10)


def test_engine_that_answers_with_200_is_well() -> None:
    with relay(b"OK\n", b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nwell") as port:
        probe("127.0.0.1", port, "a", seconds=5)


@pytest.mark.parametrize(
    ("answers", "why"),
    [
        ((b"NO the token is not that of this attempt\n",), "the relay answers 'NO the token is not"),
        ((b"OK\n", b"HTTP/1.1 503 Service Unavailable\r\n\r\n"), "/health is answered with 'HTTP/1.1 503"),
        ((b"OK\n", b"HTTP/1.1 2000 OK\r\n\r\n"), "/health is answered with"),
        ((b"OK\n", b"\n"), "/health is answered with ''"),
        ((b"OK\n",), "/health is answered with ''"),
        ((), "the relay answers ''"),
    ],
)
def test_everything_else_is_no_answer(answers: tuple[bytes, ...], why: str) -> None:
    with relay(*answers) as port, pytest.raises(NoAnswer, match=why):
        probe("127.0.0.1", port, "a", seconds=0.5)


def test_relay_that_says_nothing_is_no_answer() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener, pytest.raises(NoAnswer, match="TimeoutError"):
        probe("127.0.0.1", listener.getsockname()[1], "a", seconds=0.2)


def test_relay_that_is_gone_is_no_answer() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    with pytest.raises(NoAnswer, match="ConnectionRefusedError"):
        probe("127.0.0.1", port, "a", seconds=0.5)


def test_relay_that_answers_byte_by_byte_is_not_waited_for() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def drip() -> None:
            client, _ = listener.accept()
            with client, contextlib.suppress(OSError):
                while True:
                    client.sendall(b"x")
                    time.sleep(0.05)

        thread = threading.Thread(target=drip)
        thread.start()
        began = time.monotonic()
        with pytest.raises(NoAnswer, match="TimeoutError"):
            probe("127.0.0.1", listener.getsockname()[1], "a", seconds=0.4)
        assert time.monotonic() - began < 3
        thread.join(10)
