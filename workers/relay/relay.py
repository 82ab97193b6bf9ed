"""Splices connections of clients that know the attempt's token to a Unix socket in its sandbox: that of an engine,
or of the session server.
"""

import asyncio
import contextlib
import hmac
import os
import re
import socket
import stat
import time

GREETING = re.compile(rb"TRAINYARD/1 ([\x21-\x7e]{1,180})\n")
MOST_GREETING_BYTES = 200
GREETING_SECONDS = 5.0
CONNECT_SECONDS = 5.0
RETRY_SECONDS = 0.02
MOST_CONNECTIONS = 2048
MOST_STRANGERS = 128  # connections that have not shown the token yet
OK = b"OK\n"
_PIECE = 1 << 16
# A client whose machine is gone must not keep a connection to the engine forever.
_KEEPALIVE = ((socket.TCP_KEEPIDLE, 30), (socket.TCP_KEEPINTVL, 10), (socket.TCP_KEEPCNT, 3))

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Refused(Exception):
    """The client is not let in; the message is what it is answered."""


class Relay:
    """``directory`` is an open descriptor of the run directory, ``name`` that of the engine's socket in it."""

    def __init__(self, token: str, directory: int, name: str) -> None:
        self._token = token.encode()
        self._directory = directory
        self._name = name
        self._open = 0
        self._strangers: dict[asyncio.StreamWriter, None] = {}  # the oldest one first
        self._answers: set[asyncio.Task[None]] = set()  # of engines that have not ended their side

    async def serve(self, listener: socket.socket) -> None:
        """Until cancelled."""
        server = await asyncio.start_server(self._handle, sock=listener, limit=_PIECE)
        async with server:
            await server.serve_forever()

    async def finish(self, seconds: float) -> None:
        """Wait until all that engines have said is passed on, for at most that long."""
        if self._answers:
            await asyncio.wait(self._answers, timeout=seconds)

    async def _handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await self._check(reader, writer)
            await self._connect(reader, writer)
        except Refused as error:
            with contextlib.suppress(OSError):
                writer.write(f"NO {error}\n".encode())
                await writer.drain()
        except OSError:
            pass  # one of the two ends broke the connection
        finally:
            writer.close()

    async def _connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._open >= MOST_CONNECTIONS:
            raise Refused(f"more than {MOST_CONNECTIONS} connections are open")
        self._open += 1
        try:
            writer.transport.set_write_buffer_limits(high=0)  # nothing is left here once a piece is written
            engine = await self._opened()
            try:
                writer.write(OK)
                await writer.drain()
                await self._splice((reader, writer), engine)
            finally:
                engine[1].close()
        finally:
            self._open -= 1

    async def _check(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Raises Refused. Of too many silent connections the oldest is closed, so that new ones are still let in."""
        _watch_for_silence(writer)
        self._strangers[writer] = None
        if len(self._strangers) > MOST_STRANGERS:
            oldest = next(iter(self._strangers))
            del self._strangers[oldest]
            oldest.transport.abort()
        try:
            await self._check_token(reader)
        finally:
            self._strangers.pop(writer, None)

    async def _check_token(self, reader: asyncio.StreamReader) -> None:
        """Raises Refused, with the same words for every wrong token."""
        try:
            line = await asyncio.wait_for(reader.readuntil(b"\n"), GREETING_SECONDS)
        except TimeoutError as error:
            raise Refused(f"no token came within {GREETING_SECONDS:g} s") from error
        except (asyncio.LimitOverrunError, asyncio.IncompleteReadError) as error:
            raise Refused("the first line is not TRAINYARD/1 and a token") from error
        greeting = GREETING.fullmatch(line) if len(line) <= MOST_GREETING_BYTES else None
        if greeting is None:
            raise Refused("the first line is not TRAINYARD/1 and a token")
        if not hmac.compare_digest(greeting[1], self._token):
            raise Refused("the token is not that of this attempt")

    async def _opened(self) -> Streams:
        """A connection to the engine. Raises Refused."""
        try:
            connection = await self._socket()
        except OSError as error:
            raise Refused(f"the engine does not listen: {error.strerror or error}") from error
        return await asyncio.open_unix_connection(sock=connection, limit=_PIECE)

    async def _socket(self) -> socket.socket:
        """The engine's socket, which may be full for a moment. Raises OSError.

        The rank may put anything in its place, so links are not followed, and it is checked after it was opened.
        """
        place = os.open(self._name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=self._directory)
        try:
            if not stat.S_ISSOCK(os.fstat(place).st_mode):
                raise OSError(0, "what lies in its place is no socket")
            connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
            try:
                await _connected(connection, f"/proc/self/fd/{place}")
            except BaseException:
                connection.close()
                raise
            return connection
        finally:
            os.close(place)

    async def _splice(self, client: Streams, engine: Streams) -> None:
        """Copy both ways until both have ended, or one broke; the end of one is passed on while the other continues."""
        asked = asyncio.create_task(_copy(client[0], engine[1]))
        answer = asyncio.create_task(_copy(engine[0], client[1]))
        self._answers.add(answer)
        answer.add_done_callback(self._answers.discard)
        try:
            await asyncio.gather(asked, answer)
        finally:
            asked.cancel()
            answer.cancel()


async def _connected(connection: socket.socket, address: str) -> None:
    """Unix sockets connect at once, or refuse while the queue of the listener is full."""
    until = time.monotonic() + CONNECT_SECONDS
    while True:
        try:
            connection.connect(address)
        except BlockingIOError:
            if time.monotonic() >= until:
                raise
            await asyncio.sleep(RETRY_SECONDS)
        else:
            return


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while piece := await reader.read(_PIECE):
        writer.write(piece)
        await writer.drain()
    with contextlib.suppress(OSError):
        writer.write_eof()


def _watch_for_silence(writer: asyncio.StreamWriter) -> None:
    client: socket.socket = writer.get_extra_info("socket")
    client.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in _KEEPALIVE:
        client.setsockopt(socket.IPPROTO_TCP, option, value)
