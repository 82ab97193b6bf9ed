"""Waits in the sandbox of one node for the mpirun of another, and runs Open MPI's daemon for it, once.

Executed by `workers.rank.mpi.Mpirun` as ``python -m workers.rank.mpi_part``. It speaks JSON lines with
`workers.rank.mpi_remote`: ``challenge {nonce}`` upward, ``start {arguments, proof}`` downward, then ``ended {code}``
or ``refused {reason}``. The proof needs the attempt's secret and is of this nonce, so it can't be used again. It needs
no SSH: there is nothing to log in to, and no key. Standard library only.
"""

import contextlib
import hashlib
import hmac
import json
import os
import secrets
import selectors
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from app.host.processes import die_with_parent
from trainyard.protocol.channel import Message, encode
from workers.rank.mpi import PLAN, MpiNodes

ORTED = "orted"
NOT_FOUND = 127  # as of shells
ANSWER_SECONDS = 10.0  # for the answer to a challenge
MAX_WAITING = 16  # connections without an answer; the oldest makes room
MAX_LINE_BYTES = 1 << 16
END_SECONDS = 5.0  # for the daemon when mpirun is gone, which it detects by itself
KILL_SECONDS = 3.0  # between SIGTERM and SIGKILL


@dataclass(eq=False)
class _Connection:
    socket: socket.socket
    nonce: str
    since: float
    data: bytearray = field(default_factory=bytearray)


def proof(secret: str, nonce: str, part: int, arguments: Sequence[str]) -> str:
    """What only someone with the secret can answer to this nonce, for this command on this part."""
    text = json.dumps(["orted", nonce, part, list(arguments)])
    return hmac.new(secret.encode(), text.encode(), hashlib.sha256).hexdigest()


def main() -> int:
    """The daemon's exit code."""
    die_with_parent(os.getppid())
    plan = json.loads(Path(os.environ[PLAN]).read_text())
    nodes, part = MpiNodes.from_message(plan["nodes"]), plan["part"]
    if nodes is None:
        raise SystemExit("this job is on one node")
    try:
        listener = socket.create_server(nodes.places[part])
    except OSError as error:
        address, port = nodes.places[part]
        raise SystemExit(f"mpi: port {port} of {address} can't be used: {error.strerror}") from error
    with listener:
        client, arguments = _Door(listener, nodes.secret, part).wait()
    with client:
        return _run(client, arguments)


class _Door:
    """Connections that have not shown yet that they are of this attempt's mpirun."""

    def __init__(self, listener: socket.socket, secret: str, part: int) -> None:
        self._listener, self._secret, self._part = listener, secret, part
        self._selector = selectors.DefaultSelector()
        self._waiting: list[_Connection] = []
        listener.setblocking(False)
        self._selector.register(listener, selectors.EVENT_READ)

    def wait(self) -> tuple[socket.socket, list[str]]:
        """The first connection with a proof, and the arguments for the daemon."""
        with self._selector:
            while True:
                for key, _ in self._selector.select(1.0):
                    if key.fileobj is self._listener:
                        self._greet()
                    elif (arguments := self._answer(key.data)) is not None:
                        self._waiting.remove(key.data)
                        self._close_all()
                        return key.data.socket, arguments
                for each in [each for each in self._waiting if time.monotonic() - each.since > ANSWER_SECONDS]:
                    self._close(each)

    def _greet(self) -> None:
        try:
            accepted, _ = self._listener.accept()
        except OSError:  # it has hung up already
            return
        accepted.setblocking(False)
        if len(self._waiting) == MAX_WAITING:
            self._close(self._waiting[0])
        connection = _Connection(accepted, secrets.token_hex(32), time.monotonic())
        self._waiting.append(connection)
        self._selector.register(accepted, selectors.EVENT_READ, connection)
        send(accepted, {"type": "challenge", "nonce": connection.nonce})

    def _answer(self, connection: _Connection) -> list[str] | None:
        """The arguments that it has proved; None: not yet, or it was closed."""
        if connection not in self._waiting:  # closed in this round
            return None
        try:
            data = connection.socket.recv(MAX_LINE_BYTES)
        except BlockingIOError:
            return None
        except OSError:
            data = b""
        connection.data += data
        if data and b"\n" not in connection.data and len(connection.data) <= MAX_LINE_BYTES:
            return None
        arguments = self._proved(connection)
        if arguments is None:
            send(connection.socket, {"type": "refused", "reason": "the proof is not of this attempt"})
            self._close(connection)
        return arguments

    def _proved(self, connection: _Connection) -> list[str] | None:
        try:
            message: Any = json.loads(connection.data.partition(b"\n")[0])
            arguments, shown = message["arguments"], message["proof"].encode()
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):  # nested deeply, half a character
            return None
        if not isinstance(arguments, list) or not all(isinstance(each, str) for each in arguments):
            return None
        expected = proof(self._secret, connection.nonce, self._part, arguments)
        return arguments if hmac.compare_digest(shown, expected.encode()) else None

    def _close(self, connection: _Connection) -> None:
        self._waiting.remove(connection)
        self._selector.unregister(connection.socket)
        connection.socket.close()

    def _close_all(self) -> None:
        for each in list(self._waiting):
            self._close(each)


def send(to: socket.socket, message: Message) -> None:
    with contextlib.suppress(OSError):  # who has hung up needs no answer
        to.sendall(encode(message))


def _run(client: socket.socket, arguments: Sequence[str]) -> int:
    """Run the daemon until it ends; soon after mpirun, whose end closes the connection, it is killed."""
    parent = os.getpid()
    program = shutil.which(ORTED)
    if program is None:
        sys.stderr.write(f"mpi: {ORTED} of Open MPI is not installed on this node, beside mpirun\n")
        send(client, {"type": "ended", "code": NOT_FOUND})
        return NOT_FOUND
    daemon = subprocess.Popen(
        [program, *arguments],
        stdin=subprocess.DEVNULL,
        preexec_fn=lambda: die_with_parent(parent),  # noqa: PLW1509 – one thread: nothing can deadlock
    )
    _wait(daemon, client)
    code = daemon.wait()
    code = code if code >= 0 else 128 - code
    send(client, {"type": "ended", "code": code})
    return code


def _wait(daemon: "subprocess.Popen[bytes]", client: socket.socket) -> None:
    pidfd = os.pidfd_open(daemon.pid)
    try:
        with selectors.DefaultSelector() as selector:
            selector.register(pidfd, selectors.EVENT_READ)
            selector.register(client, selectors.EVENT_READ)
            if any(key.fd == pidfd for key, _ in selector.select()):
                return
    finally:
        os.close(pidfd)
    for seconds, number in ((END_SECONDS, signal.SIGTERM), (KILL_SECONDS, signal.SIGKILL)):
        try:
            daemon.wait(seconds)
            return
        except subprocess.TimeoutExpired:
            daemon.send_signal(number)


if __name__ == "__main__":
    sys.exit(main())
