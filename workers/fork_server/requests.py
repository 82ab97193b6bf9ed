"""How a process is requested: a request with open files, the pid of the process that took it, and the go-ahead.

A process becomes what it was asked to be only after the go-ahead of a client that waits for it. So a client that gives
up may start the same process in another way: there will not be two.
"""

import json
import os
import socket
import struct
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from app.host.processes import place
from trainyard.protocol.channel import short_address

MOST_FILES = 64
ANSWER_SECONDS = 3.0  # in all
SILENT_SECONDS = 60.0
_LENGTH = struct.Struct("!Q")
_PID = struct.Struct("!i")
_GO = b"g"
_CODE = Path(__file__).parents[2]
_INSTALLED = Path(__file__).stat().st_mtime_ns  # another one after an upgrade
_silent_until: dict[Path, float] = {}  # servers that did not answer in time


class NoForkServer(OSError):
    """No fork server answers: the process has to be started as a program."""


@dataclass(frozen=True)
class ForkRequest:
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


def connect(path: Path) -> socket.socket:
    """A connection to the fork server that listens at ``path``. Raises NoForkServer."""
    connection = socket.socket(socket.AF_UNIX)
    try:
        if time.monotonic() < _silent_until.get(path, 0.0):
            raise TimeoutError("it did not answer a moment ago")
        connection.settimeout(ANSWER_SECONDS)
        with short_address(path) as address:
            connection.connect(address)
    except OSError as error:
        connection.close()
        raise NoForkServer(f"no fork server answers at {path}: {error}") from error
    return connection


def ask(connection: socket.socket, path: Path, fields: Mapping[str, Any], files: Sequence[int] = ()) -> int:
    """Have the server fork a process, and close the connection; returns the pid, as that process sees it.

    Raises NoForkServer. A server that does not answer in time is not asked again for a while.
    """
    body = json.dumps({**fields, "origin": origin()}).encode()
    until = time.monotonic() + ANSWER_SECONDS
    try:
        with connection:
            socket.send_fds(connection, [_LENGTH.pack(len(body))], list(files))
            connection.sendall(body)
            pid: int = _PID.unpack(_received(connection, _PID.size, until))[0]
            connection.sendall(_GO)
            return pid
    except TimeoutError as error:
        _silent_until[path] = time.monotonic() + SILENT_SECONDS
        raise NoForkServer(f"the fork server at {path} did not answer in time") from error
    except (OSError, EOFError) as error:
        raise NoForkServer(f"no fork server answers at {path}: {error}") from error


def origin() -> list[str]:
    """What client and server must have in common: namespaces, interpreter, and the code that each has imported."""
    namespaces = [str(Path(f"/proc/self/ns/{name}").readlink()) for name in ("mnt", "net")]
    return [place(), *namespaces, sys.executable, str(_CODE), str(_INSTALLED)]


def is_upgraded() -> bool:
    """Whether the code that this process has imported was replaced since then."""
    try:
        return Path(__file__).stat().st_mtime_ns != _INSTALLED
    except FileNotFoundError:
        return True


def bind(path: Path) -> socket.socket:
    """A socket with this path; a connection is refused until it listens."""
    with suppress(FileNotFoundError):
        path.unlink()
    bound = socket.socket(socket.AF_UNIX)
    with short_address(path) as address:
        bound.bind(address)
    path.chmod(0o600)
    return bound


def receive(connection: socket.socket) -> ForkRequest | None:
    """In the forked process: the request; None when its client has given up, or is of another installation."""
    try:
        head, files, _, _ = socket.recv_fds(connection, _LENGTH.size, MOST_FILES)
        (length,) = _LENGTH.unpack(head + _received(connection, _LENGTH.size - len(head)))
        fields = json.loads(_received(connection, length))
    except (OSError, EOFError):
        return None
    return ForkRequest(fields, files, connection) if fields["origin"] == origin() else None


def _received(connection: socket.socket, size: int, until: float | None = None) -> bytes:
    """So many bytes. Raises EOFError, and TimeoutError at the time ``until``."""
    data = bytearray()
    while len(data) < size:
        if until is not None:
            connection.settimeout(max(0.001, until - time.monotonic()))
        piece = connection.recv(size - len(data))
        if not piece:
            raise EOFError("the connection was closed")
        data += piece
    return bytes(data)
