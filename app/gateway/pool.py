"""Connections to engines, through the relays of their nodes: opened with the attempt's token, and kept while idle."""

import asyncio
import contextlib
import socket
import time
from collections import defaultdict
from dataclasses import dataclass
from functools import partial
from weakref import WeakValueDictionary

from tornado.iostream import IOStream, StreamClosedError, UnsatisfiableReadError
from tornado.tcpclient import TCPClient

from app.security.relay_tokens import relay_token
from app.services.serving.endpoints import Endpoint

CONNECT_SECONDS = 5.0
IDLE_SECONDS = 20.0
MAX_IDLE = 64  # connections of one endpoint
MAX_OPENING = 32  # at a time of one endpoint: a relay closes connections that are silent when there are over 128
MAX_BUFFER_BYTES = 128 << 20
MAX_REPLY_BYTES = 512
READ_BYTES = 8 << 10  # tornado clears a buffer of this size twice for each event of a stream
# A node that vanished is noticed without traffic: 5 + 3 × 2 s.
_LIVENESS = {socket.TCP_KEEPIDLE: 5, socket.TCP_KEEPINTVL: 2, socket.TCP_KEEPCNT: 3, socket.TCP_USER_TIMEOUT: 11_000}


class NotConnected(Exception):
    """The relay can't be reached, or refuses; nothing of the request was sent."""


@dataclass(eq=False)
class PooledConnection:
    endpoint: Endpoint
    stream: IOStream
    is_reused: bool = False  # the engine may have closed it meanwhile
    idle_since: float = 0.0


class Pool:
    """For one event loop."""

    def __init__(self, secret_key: str) -> None:
        self._secret_key = secret_key
        self._clients = TCPClient()
        self._idle: defaultdict[Endpoint, list[PooledConnection]] = defaultdict(list)
        self._opening: WeakValueDictionary[Endpoint, asyncio.Semaphore] = WeakValueDictionary()

    async def take(self, endpoint: Endpoint, *, fresh: bool = False) -> PooledConnection:
        """A connection on which nothing is under way. Raises NotConnected."""
        idle = self._idle.get(endpoint, [])
        while idle and not fresh:
            connection = idle.pop()
            connection.stream.set_close_callback(None)
            if not connection.stream.closed():
                connection.is_reused = True
                return connection
        return await self._opened(endpoint)

    def give_back(self, connection: PooledConnection) -> None:
        """Keep a connection whose answer was read to its end."""
        idle = self._idle[connection.endpoint]
        if connection.stream.closed() or len(idle) >= MAX_IDLE:
            connection.stream.close()
            return
        connection.idle_since = time.monotonic()
        connection.stream.set_close_callback(partial(self._forget, connection))
        idle.append(connection)

    def sweep(self) -> None:
        """Close what has been idle for long; call it periodically."""
        before = time.monotonic() - IDLE_SECONDS
        for endpoint, idle in list(self._idle.items()):
            for connection in [each for each in idle if each.idle_since < before]:
                connection.stream.close()
            if not idle:
                self._idle.pop(endpoint, None)

    def close(self) -> None:
        for idle in list(self._idle.values()):
            for connection in list(idle):
                connection.stream.close()
        self._clients.close()

    def _forget(self, connection: PooledConnection) -> None:
        with contextlib.suppress(ValueError):
            self._idle[connection.endpoint].remove(connection)

    async def _opened(self, endpoint: Endpoint) -> PooledConnection:
        turns = self._opening.get(endpoint)
        if turns is None:
            turns = self._opening[endpoint] = asyncio.Semaphore(MAX_OPENING)
        try:
            async with turns, asyncio.timeout(CONNECT_SECONDS):
                stream = await self._clients.connect(
                    endpoint.address, endpoint.port, max_buffer_size=MAX_BUFFER_BYTES, timeout=CONNECT_SECONDS
                )
                await self._introduce(stream, endpoint)
        except (OSError, StreamClosedError, UnsatisfiableReadError) as error:  # a timeout is an OSError
            raise NotConnected(f"the relay of {endpoint.job_id} does not answer: {error}") from error
        return PooledConnection(endpoint, stream)

    async def _introduce(self, stream: IOStream, endpoint: Endpoint) -> None:
        """Say the token of the attempt. Raises NotConnected when the relay refuses."""
        if stream.closed():  # since it was connected
            raise StreamClosedError(stream.error)
        stream.read_chunk_size = READ_BYTES
        stream.socket.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for option, value in _LIVENESS.items():
            stream.socket.setsockopt(socket.IPPROTO_TCP, option, value)
        token = relay_token(self._secret_key, job_id=endpoint.job_id, attempt=endpoint.attempt, fence=endpoint.fence)
        try:
            await stream.write(f"TRAINYARD/1 {token}\n".encode())
            reply = (await stream.read_until(b"\n", max_bytes=MAX_REPLY_BYTES)).decode(errors="replace").strip()
            if reply != "OK":
                raise NotConnected(f"the relay of {endpoint.job_id} refuses: {reply}")
        except BaseException:
            stream.close()
            raise
