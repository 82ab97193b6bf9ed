"""How a process is requested: a request with open files, the pid of the process that took it, and the go-ahead.

A process becomes what it was asked to be only after the go-ahead of a client that waits for it. So a client that gives
up may start the same process in another way: there will not be two.
"""

import json
import os
import socket
import struct
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainyard.protocol.channel import short_address

MOST_FILES = 64
ANSWER_SECONDS = 5.0
_LENGTH = struct.Struct("!Q")
_PID = struct.Struct("!i")
_GO = b"g"


class NoForkServer(OSError):
    """No fork server answers: the process has to be started as a program."""


@dataclass(frozen=True)
class Request:
    """What a forked process got: the client's fields and copies of its files."""

    fields: Mapping[str, Any]
    files: Sequence[int]
    connection: socket.socket

    def is_confirmed(self) -> bool:
        """Say that this process is ready to become what was asked for, and wait for the go-ahead; False: end."""
        with self.connection:
            try:
                self.connection.sendall(_PID.pack(os.getpid()))
                _received(self.connection, len(_GO))
            except (OSError, EOFError):
                return False
        return True


def ask(path: Path, fields: Mapping[str, Any], files: Sequence[int] = ()) -> int:
    """Have the fork server that listens at ``path`` fork a process; returns its pid, as that process sees it.

    Raises NoForkServer.
    """
    body = json.dumps(fields).encode()
    try:
        with socket.socket(socket.AF_UNIX) as connection, short_address(path) as address:
            connection.settimeout(ANSWER_SECONDS)
            connection.connect(address)
            socket.send_fds(connection, [_LENGTH.pack(len(body))], list(files))
            connection.sendall(body)
            pid: int = _PID.unpack(_received(connection, _PID.size))[0]
            connection.sendall(_GO)
            return pid
    except (OSError, EOFError) as error:
        raise NoForkServer(f"no fork server answers at {path}: {error}") from error


def bind(path: Path) -> socket.socket:
    """A socket with this path; a connection is refused until it listens."""
    with suppress(FileNotFoundError):
        path.unlink()
    bound = socket.socket(socket.AF_UNIX)
    with short_address(path) as address:
        bound.bind(address)
    path.chmod(0o600)
    return bound


def receive(connection: socket.socket) -> Request | None:
    """In the forked process: the request; None when its client has given up."""
    try:
        head, files, _, _ = socket.recv_fds(connection, _LENGTH.size, MOST_FILES)
        (length,) = _LENGTH.unpack(head + _received(connection, _LENGTH.size - len(head)))
        return Request(json.loads(_received(connection, length)), files, connection)
    except (OSError, EOFError):
        return None


def _received(connection: socket.socket, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        piece = connection.recv(size - len(data))
        if not piece:
            raise EOFError("the connection was closed")
        data += piece
    return bytes(data)
