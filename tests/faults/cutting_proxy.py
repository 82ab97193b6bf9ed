"""A proxy of HTTP that cuts connections of a client at named moments of a request."""

import asyncio
import contextlib
import re
import socket
import struct
from collections import deque
from enum import StrEnum

from tests.faults.proxy import ProxyThread

_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)\r\n", re.IGNORECASE)
_CONNECTION = re.compile(rb"\r\nconnection: *[^\r]*", re.IGNORECASE)


class Moment(StrEnum):
    """When the client loses its connection."""

    SENT = "sent"  # the server has the request, and carries it out meanwhile
    COMMITTED = "committed"  # the server answers, so it has committed; nothing of that arrives
    ANSWERING = "answering"  # half of the answer has arrived


class CuttingProxy:
    """For one client that asks one thing at a time; ``cut`` each connection that the moments count."""

    def __init__(self, thread: ProxyThread, port: int) -> None:
        self._thread, self._upstream = thread, port
        self._moments: deque[Moment] = deque()
        self._tasks: set[asyncio.Task[None] | None] = set()  # the loop itself would forget those that wait
        self.cuts: list[Moment] = []
        self._server = thread.do(asyncio.start_server(self._serve, "127.0.0.1", 0))
        self.port = int(self._server.sockets[0].getsockname()[1])

    def cut(self, *moments: Moment) -> None:
        """The next POST requests, one after the other; only what is sent again arrives."""
        self._moments.extend(moments)

    @property
    def is_armed(self) -> bool:
        """Whether a cut is still to come."""
        return bool(self._moments)

    def close(self) -> None:
        async def on_loop() -> None:
            self._server.close()

        self._thread.do(on_loop())

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        self._tasks.add(task)
        with contextlib.ExitStack() as stack:
            stack.callback(self._tasks.discard, task)
            stack.enter_context(contextlib.suppress(OSError, asyncio.IncompleteReadError))
            stack.enter_context(contextlib.closing(writer))
            head = await reader.readuntil(b"\r\n\r\n")
            length = _LENGTH.search(head)
            body = await reader.readexactly(int(length[1]) if length else 0)
            answers, upstream = await asyncio.open_connection("127.0.0.1", self._upstream)
            with contextlib.closing(upstream):
                # One request on each connection: its end is that of the answer.
                upstream.write(_CONNECTION.sub(b"", head).replace(b"\r\n", b"\r\nConnection: close\r\n", 1) + body)
                moment = self._moments.popleft() if head.startswith(b"POST ") and self._moments else None
                await self._answer(answers, writer, moment)

    async def _answer(self, answers: asyncio.StreamReader, client: asyncio.StreamWriter, moment: Moment | None) -> None:
        if moment is not None:
            self.cuts.append(moment)
        if moment is Moment.SENT:
            _reset(client)
        answer = await answers.read()
        if moment is Moment.COMMITTED:
            _reset(client)
        elif moment is not Moment.SENT:
            client.write(answer if moment is None else answer[: len(answer) // 2])
            await client.drain()


def _reset(client: asyncio.StreamWriter) -> None:
    connection: socket.socket = client.get_extra_info("socket")
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    client.transport.abort()
