"""A closed load of clients that do next to nothing themselves, so that what is measured is the server."""

import socket
import statistics
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

RECEIVE_BYTES = 65536


@dataclass
class Load:
    """What came of a load: answers by status, and how long each took."""

    seconds: float = 0.0
    statuses: dict[int, int] = field(default_factory=dict)
    milliseconds: list[float] = field(default_factory=list)

    def per_second(self, status: int) -> float:
        return self.statuses.get(status, 0) / self.seconds

    def percentile(self, share: float) -> float:
        return percentile(self.milliseconds, share)


def percentile(values: Sequence[float], share: float) -> float:
    ordered = sorted(values)
    return round(ordered[min(len(ordered) - 1, int(share * len(ordered)))], 2)


def median(values: Sequence[float]) -> float:
    return round(statistics.median(values), 3)


def post_request(path: str, body: bytes, headers: dict[str, str]) -> bytes:
    """The bytes of a request, made once and sent often."""
    lines = [f"POST {path} HTTP/1.1", "Host: localhost", "Content-Type: application/json"]
    lines += [f"Content-Length: {len(body)}", *(f"{name}: {value}" for name, value in headers.items())]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def run(port: int, requests: Sequence[bytes], seconds: float) -> Load:
    """One client for each request, each sending it again and again over a connection that stays open."""
    load, lock = Load(), threading.Lock()
    deadline = time.perf_counter() + seconds
    clients = [threading.Thread(target=_client, args=(port, one, deadline, load, lock)) for one in requests]
    began = time.perf_counter()
    for client in clients:
        client.start()
    for client in clients:
        client.join()
    load.seconds = time.perf_counter() - began
    return load


def _client(port: int, request: bytes, deadline: float, load: Load, lock: threading.Lock) -> None:
    statuses: dict[int, int] = {}
    milliseconds: list[float] = []
    connection: socket.socket | None = None
    while (began := time.perf_counter()) < deadline:
        connection = connection or _connect(port)
        status, stays_open = _exchange(connection, request)
        milliseconds.append(1000 * (time.perf_counter() - began))
        statuses[status] = statuses.get(status, 0) + 1
        if not stays_open:
            connection.close()
            connection = None
    if connection is not None:
        connection.close()
    with lock:
        load.milliseconds += milliseconds
        for status, count in statuses.items():
            load.statuses[status] = load.statuses.get(status, 0) + count


def _connect(port: int) -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", port), timeout=60)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


def _exchange(connection: socket.socket, request: bytes) -> tuple[int, bool]:
    """(status, whether the connection stays open) of an answer with a Content-Length."""
    connection.sendall(request)
    received = b""
    while (end := received.find(b"\r\n\r\n")) < 0:
        received += _received(connection)
    head = received[:end].lower()
    length = next(int(line[15:]) for line in head.split(b"\r\n") if line.startswith(b"content-length:"))
    missing = length - (len(received) - end - 4)
    while missing > 0:
        missing -= len(_received(connection))
    return int(head[9:12]), b"connection: close" not in head


def _received(connection: socket.socket) -> bytes:
    piece = connection.recv(RECEIVE_BYTES)
    if not piece:
        raise ConnectionError("the server closed the connection in the middle of an answer")
    return piece
