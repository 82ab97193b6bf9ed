"""Connections to ports of jobs, through the relay of the node and the job's session server."""

import asyncio
import contextlib
import json
import os
import socket
from dataclasses import dataclass
from pathlib import Path

from tornado.iostream import IOStream, StreamClosedError, UnsatisfiableReadError
from tornado.tcpclient import TCPClient

from app.gateway.interactive.sandbox_connection import (
    ANSWER_SECONDS,
    CONNECT_SECONDS,
    MOST_LINE_BYTES,
    NotReached,
    RefusedThere,
)
from app.security.relay_tokens import interactive_token
from app.services.attempts import interactive_endpoints
from app.services.attempts.interactive_endpoints import SandboxEndpoint
from trainyard.protocol.session_answers import read_answer

BUFFER_BYTES = 1 << 20
NEARBY_BYTES = 2 << 20  # that a relay of this machine need not have read
_LIVENESS = {socket.TCP_KEEPIDLE: 5, socket.TCP_KEEPINTVL: 2, socket.TCP_KEEPCNT: 3}


@dataclass(frozen=True)
class SandboxPort:
    """A port of one attempt's sandbox."""

    endpoint: SandboxEndpoint
    port: int  # 0 is the notebook's, wherever it listens


class PortConnections:
    """For one event loop."""

    def __init__(self, secret_key: str, data_dir: Path) -> None:
        self._secret_key, self._data_dir = secret_key, data_dir.resolve()
        self._clients = TCPClient()

    def close(self) -> None:
        self._clients.close()

    async def open(self, place: SandboxPort) -> IOStream:
        """A connection of its own for each request, so that nothing of one answer can be taken for another's.

        Raises NotReached, and RefusedThere where nothing listens.
        """
        endpoint = place.endpoint
        if not endpoint.port:
            raise NotReached(endpoint.message or "the job's sandbox cannot be reached")
        stream = self._nearby(endpoint) or await self._remote(endpoint)
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                await self._introduce(stream, place)
        except TimeoutError as error:
            stream.close()
            raise NotReached(f"the job's sandbox did not answer within {ANSWER_SECONDS:g} s") from error
        except (OSError, StreamClosedError, UnsatisfiableReadError, ValueError) as error:
            stream.close()
            raise NotReached("the job's sandbox closed the connection; it may have ended") from error
        except BaseException:
            stream.close()
            raise
        return stream

    def _nearby(self, endpoint: SandboxEndpoint) -> IOStream | None:
        """The relay of this machine, where there is one: a Unix socket takes half the processor time of TCP."""
        path = interactive_endpoints.local_socket(self._data_dir, endpoint.job_id, endpoint.attempt, endpoint.part)
        try:
            return IOStream(_connected(path), max_buffer_size=BUFFER_BYTES)
        except OSError:  # on another machine, of another user, or too busy: reached by TCP
            return None

    async def _remote(self, endpoint: SandboxEndpoint) -> IOStream:
        """Raises NotReached."""
        try:
            stream = await self._clients.connect(
                endpoint.address, endpoint.port, max_buffer_size=BUFFER_BYTES, timeout=CONNECT_SECONDS
            )
        except (OSError, StreamClosedError) as error:  # a timeout is an OSError
            raise NotReached(f"the node of the job cannot be reached: {error}") from error
        if not stream.closed():  # since it was connected
            stream.set_nodelay(True)
            stream.socket.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            for option, value in _LIVENESS.items():
                stream.socket.setsockopt(socket.IPPROTO_TCP, option, value)
        return stream

    async def _introduce(self, stream: IOStream, place: SandboxPort) -> None:
        """Say the token of the attempt, and which port is meant, in one go."""
        of = place.endpoint
        token = interactive_token(self._secret_key, job_id=of.job_id, attempt=of.attempt, fence=of.fence, part=of.part)
        request = json.dumps({"type": "connect", "port": place.port})
        await stream.write(f"TRAINYARD/1 {token}\n{request}\n".encode())
        reply = await _line(stream)
        if reply != "OK":
            raise NotReached(f"the node of the job refuses the connection: {reply.removeprefix('NO ')}")
        refusal = read_answer(await _line(stream))
        if refusal is not None:
            raise RefusedThere(refusal.message)


def _connected(path: Path) -> socket.socket:
    """Raises OSError."""
    with contextlib.ExitStack() as opened:
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        opened.callback(connection.close)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, NEARBY_BYTES)
        directory = os.open(path.parent, os.O_PATH | os.O_DIRECTORY)
        try:
            connection.connect(f"/proc/self/fd/{directory}/{path.name}")  # the path itself may be too long
        finally:
            os.close(directory)
        opened.pop_all()
        return connection


async def _line(stream: IOStream) -> str:
    return (await stream.read_until(b"\n", max_bytes=MOST_LINE_BYTES)).decode(errors="replace").strip()
