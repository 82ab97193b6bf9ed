"""A connection to the session server of a running attempt, through the relay of its node."""

import asyncio
import contextlib
import json
import socket
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from app.security.relay_tokens import interactive_token
from app.services.attempts.interactive_endpoints import SandboxEndpoint
from trainyard.protocol.session_answers import read_answer

CONNECT_SECONDS = 5.0
ANSWER_SECONDS = 15.0  # in which a command has started, or the port has answered
MOST_LINE_BYTES = 8 << 10
BUFFER_BYTES = 64 << 10  # of each direction; what is more waits in the sandbox
# A node that vanished is noticed without traffic. There is no TCP_USER_TIMEOUT: it would also end a connection to a
# command that does not read its input for a while.
_LIVENESS = {socket.TCP_KEEPIDLE: 5, socket.TCP_KEEPINTVL: 2, socket.TCP_KEEPCNT: 3}


class NotReached(Exception):
    """The relay or the session server can't be reached, or does not let us in; a person may read the message."""


class RefusedThere(NotReached):
    """The session server answers that it can't do what is asked, such as start a command that does not exist.

    ``exit_code`` is what a shell would end with, where it was a command.
    """

    def __init__(self, message: str, exit_code: int | None = None) -> None:
        super().__init__(message)
        self.exit_code = exit_code


@dataclass(frozen=True, eq=False)
class SandboxConnection:
    """What follows the answer ``started``: frames, or the bytes of a port."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def finish(self, seconds: float) -> None:
        """End the input, and let the other side take what was sent, for at most so long; then as `close`."""
        with contextlib.suppress(OSError):  # a timeout is one
            async with asyncio.timeout(seconds):
                self.writer.write_eof()
                while await self.reader.read(BUFFER_BYTES):
                    pass
        self.close()

    def close(self) -> None:
        """At once; what was not sent is dropped. The session server ends what belongs to the connection.

        It is reset: the relay would take a plain end for that of one direction.
        """
        connected = self.writer.get_extra_info("socket")
        with contextlib.suppress(OSError):
            connected.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.writer.transport.abort()


async def connect(secret_key: str, endpoint: SandboxEndpoint, request: Mapping[str, Any]) -> SandboxConnection:
    """Have the session server do what is asked. Raises NotReached."""
    if not endpoint.port:
        raise NotReached(endpoint.message or "the job's sandbox cannot be reached")
    connection = await _opened(endpoint)
    try:
        async with asyncio.timeout(ANSWER_SECONDS):
            await _introduce(connection, secret_key, endpoint)
            await _ask(connection, request)
    except TimeoutError as error:
        connection.close()
        raise NotReached(f"the job's sandbox did not answer within {ANSWER_SECONDS:g} s") from error
    except (OSError, ValueError, asyncio.IncompleteReadError) as error:
        connection.close()
        raise NotReached("the job's sandbox closed the connection; it may have ended") from error
    except BaseException:
        connection.close()
        raise
    return connection


async def _opened(endpoint: SandboxEndpoint) -> SandboxConnection:
    try:
        async with asyncio.timeout(CONNECT_SECONDS):
            opened = await asyncio.open_connection(endpoint.address, endpoint.port, limit=BUFFER_BYTES)
    except OSError as error:  # a timeout is one
        why = error.strerror or f"no answer within {CONNECT_SECONDS:g} s"
        raise NotReached(f"the node of the job cannot be reached: {why}") from error
    connection = SandboxConnection(*opened)
    connection.writer.transport.set_write_buffer_limits(high=BUFFER_BYTES)
    connected: socket.socket = connection.writer.get_extra_info("socket")
    connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in _LIVENESS.items():
        connected.setsockopt(socket.IPPROTO_TCP, option, value)
    return connection


async def _introduce(connection: SandboxConnection, secret_key: str, endpoint: SandboxEndpoint) -> None:
    token = interactive_token(
        secret_key, job_id=endpoint.job_id, attempt=endpoint.attempt, fence=endpoint.fence, part=endpoint.part
    )
    connection.writer.write(f"TRAINYARD/1 {token}\n".encode())
    reply = await _line(connection)
    if reply != b"OK\n":
        said = reply.decode(errors="replace").strip().removeprefix("NO ")
        raise NotReached(f"the node of the job refuses the connection: {said}")


async def _ask(connection: SandboxConnection, request: Mapping[str, Any]) -> None:
    connection.writer.write(json.dumps(request).encode() + b"\n")
    refusal = read_answer(await _line(connection))
    if refusal is not None:
        raise RefusedThere(refusal.message, refusal.exit_code)


async def _line(connection: SandboxConnection) -> bytes:
    """Raises ValueError for a line that is too long: processes of the job may have taken the server's place."""
    try:
        line = await connection.reader.readuntil(b"\n")
    except asyncio.LimitOverrunError as error:
        raise ValueError("the line is too long") from error
    if len(line) > MOST_LINE_BYTES:
        raise ValueError("the line is too long")
    return line
