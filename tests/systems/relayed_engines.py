"""Engines at Unix sockets, and what clients of the relay before them say and hear."""

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

TOKEN = "a" * 64


def answers_reversed(connection: socket.socket) -> None:
    """Reads to the end, answers, and ends."""
    data = b""
    while piece := connection.recv(1 << 16):
        data += piece
    connection.sendall(data[::-1])


@contextmanager
def engine_at(path: Path, handle: Callable[[socket.socket], None] = answers_reversed) -> Iterator[None]:
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(str(path))
    listener.listen()

    def serve() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=_handled, args=(handle, connection), daemon=True).start()

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    yield
    listener.shutdown(socket.SHUT_RDWR)
    listener.close()
    thread.join(5)


def _handled(handle: Callable[[socket.socket], None], connection: socket.socket) -> None:
    with connection:
        handle(connection)


def said(port: int, first: bytes, *more: bytes) -> bytes:
    """All that is answered to a greeting and what follows it."""
    with socket.create_connection(("127.0.0.1", port), timeout=10) as client:
        client.sendall(first)
        for piece in more:
            client.sendall(piece)
        client.shutdown(socket.SHUT_WR)
        answer = b""
        while piece := client.recv(1 << 16):
            answer += piece
        return answer
