"""The client's end of an interactive session: a WebSocket at the gateway, opened with the ticket that the API gave."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any

from tornado.httpclient import HTTPClientError, HTTPRequest
from tornado.iostream import StreamClosedError
from tornado.websocket import WebSocketClientConnection, WebSocketClosedError, WebSocketError, websocket_connect

from trainyard.client import Client
from trainyard.protocol.interactive import PROTOCOL

CONNECT_SECONDS = 20.0
NORMAL = 1000  # code of a WebSocket's end
_CLOSE_SECONDS = 1.0
CHUNK_BYTES = 32 << 10


class SessionError(Exception):
    """The session could not be opened, or ended without the end of what ran in it."""


class SessionClosed(SessionError):
    """The other side has closed. What it said before, such as how the command ended, can still be received."""


@dataclass(frozen=True, kw_only=True)
class SessionTicket:
    """A session that the API has made. The ticket is valid for a minute, and once."""

    session_id: str
    url: str
    ticket: str
    recorded: bool = False


Opener = Callable[..., SessionTicket]
"""Makes a session of a job: kind, and the fields of its request."""


def open_session(client: Client, job_id: str, *, kind: str, **request: Any) -> SessionTicket:
    """Asks the API for a session. Raises ClientError."""
    made = client.create_session(job_id, kind=kind, **request)
    session = made["session"]
    return SessionTicket(
        session_id=session["session_id"], url=made["url"], ticket=made["ticket"], recorded=session["recorded"]
    )


class SessionSocket:
    """Messages in both directions; each waits until the other side takes it, so that nothing piles up here."""

    def __init__(self, connection: WebSocketClientConnection) -> None:
        self._connection = connection

    async def send(self, message: bytes) -> None:
        """Raises SessionClosed once the session has ended."""
        try:
            await self._connection.write_message(message, binary=True)
        except (WebSocketClosedError, StreamClosedError) as error:
            raise SessionClosed(self.reason) from error

    async def receive(self) -> bytes | None:
        """None once the other side has closed."""
        message = await self._connection.read_message()
        return message.encode() if isinstance(message, str) else message

    @property
    def reason(self) -> str:
        """Why the other side has closed."""
        return self._connection.close_reason or "the connection to the gateway broke"

    @property
    def has_failed(self) -> bool:
        """Whether the other side has closed for another reason than its normal end."""
        return self._connection.close_code != NORMAL

    async def close(self) -> None:
        self._connection.close()
        with suppress(TimeoutError):
            async with asyncio.timeout(_CLOSE_SECONDS):
                while await self._connection.read_message() is not None:
                    pass


@asynccontextmanager
async def connected(opened: SessionTicket) -> AsyncIterator[SessionSocket]:
    """The session's socket. Raises SessionError for a gateway that is away or refuses."""
    headers = {"Authorization": f"Bearer {opened.ticket}"}
    request = HTTPRequest(opened.url, headers=headers, connect_timeout=CONNECT_SECONDS, request_timeout=CONNECT_SECONDS)
    try:
        connection = await websocket_connect(request, subprotocols=[PROTOCOL])
    except HTTPClientError as error:
        raise SessionError(_refusal(error)) from error
    except (OSError, WebSocketError) as error:
        raise SessionError(f"no gateway at {opened.url}: {error}") from error
    socket = SessionSocket(connection)
    try:
        yield socket
    finally:
        await socket.close()


def _refusal(error: HTTPClientError) -> str:
    """What the gateway says in the error format of the API."""
    try:
        body = json.loads(error.response.body) if error.response is not None else {}
        return str(body["error"]["message"])
    except (ValueError, KeyError, TypeError):
        return f"the gateway refused the session: {error}"
