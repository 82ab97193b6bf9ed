"""Asks an engine through its relay whether it answers, as a gateway would."""

import re
import socket
import time

PATH = "/health"
# By hand: http.client would load TLS and mail into every supervisor.
_REQUEST = f"GET {PATH} HTTP/1.1\r\nHost: engine\r\nConnection: close\r\n\r\n".encode()
_STATUS = re.compile(r"HTTP/1\.[01] (\d{3})\b")
_MOST_BYTES = 1000  # of a line


class NoAnswer(Exception):
    """The engine did not answer; the message says what happened instead."""


def probe(address: str, port: int, token: str, *, seconds: float) -> None:
    """Raises NoAnswer unless the engine answers its health check with 200, within this time as a whole."""
    until = time.monotonic() + seconds
    try:
        with socket.create_connection((address, port), timeout=seconds) as connection:
            greet(connection, token, until)
            connection.sendall(_REQUEST)
            status = _STATUS.match(line := read_line(connection, until))
    except OSError as error:
        raise NoAnswer(f"{type(error).__name__}: {error}") from error
    if status is None or status[1] != "200":
        raise NoAnswer(f"{PATH} is answered with {line!r}")


def greet(connection: socket.socket, token: str, until: float) -> None:
    """Show a relay the token. Raises NoAnswer and OSError."""
    connection.sendall(f"TRAINYARD/1 {token}\n".encode())
    if (greeting := read_line(connection, until)) != "OK":
        raise NoAnswer(f"the relay answers {greeting!r}")


def read_line(connection: socket.socket, until: float) -> str:
    """Byte by byte, because what follows is another's. Raises OSError."""
    line = b""
    while not line.endswith(b"\n") and len(line) < _MOST_BYTES:
        if (left := until - time.monotonic()) <= 0:
            raise TimeoutError("timed out")
        connection.settimeout(left)
        if not (byte := connection.recv(1)):
            break
        line += byte
    return line.decode(errors="replace").rstrip("\r\n")
