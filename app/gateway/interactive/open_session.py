"""One open session of a gateway, from its redeemed ticket to its end."""

import asyncio
import contextlib
import logging
import time
from typing import Protocol

from app.domain.interactive import EXEC, PORT_FORWARD
from app.gateway.interactive.conversation import (
    LOST,
    CommandConversation,
    Conversation,
    PortConversation,
    ProtocolBroken,
)
from app.gateway.interactive.ends import CLIENT_GONE, CLIENT_LEFT, End
from app.gateway.interactive.recording import Recording, RecordingEnded
from app.gateway.interactive.sandbox_connection import NotReached, RefusedThere, SandboxConnection, connect
from app.gateway.interactive.session_backend import SessionBackend
from app.services.interactive.attending import RedeemedSession, Traffic
from config.logging import log_context
from trainyard.protocol.interactive import STATUS

PING_SECONDS = 20.0
STALLED_PING_SECONDS = 5.0  # while a message of the client is passed on
LAST_SECONDS = 5.0  # in which a port may take the last bytes of a client that has left
MOST_UNANSWERED = 3  # pings of a client that takes what it is sent
logger = logging.getLogger(__name__)


class SessionPeer(Protocol):
    """The WebSocket of a session."""

    async def send(self, message: bytes) -> None:
        """Done when the connection has taken it. Raises ConnectionError."""

    def is_gone(self) -> bool:
        """Whether the connection has ended, also while nothing is read of it."""

    def send_ping(self) -> None:
        """Raises ConnectionError."""

    def close_with(self, last: bytes, code: int, reason: str) -> None:
        """Send the last message, if there is one, and close; without waiting."""

    def drop(self) -> None:
        """Close it at once, without a word; again is harmless."""


class OpenSession:
    """For one event loop. `run` ends when the command, the client, or anyone by `end` ends it."""

    def __init__(
        self, redeemed: RedeemedSession, client: SessionPeer, backend: SessionBackend, *, idle_seconds: float
    ) -> None:
        self.redeemed = redeemed
        self._client = client
        self._backend = backend
        self._idle_seconds = idle_seconds
        self._recording = self._new_recording()
        self._conversation: Conversation | None = None
        self._connection: SandboxConnection | None = None
        self._connected = asyncio.Event()
        self._ended: asyncio.Future[End] = asyncio.get_running_loop().create_future()
        self._began = self._pinged_at = time.monotonic()
        self._unanswered = 0
        self._is_sending = self._is_taking = False

    @property
    def id(self) -> str:
        return self.redeemed.session_id

    @property
    def counts(self) -> Traffic:
        talk = self._conversation
        return Traffic() if talk is None else Traffic(bytes_in=talk.bytes_in, bytes_out=talk.bytes_out)

    def end(self, end: End) -> None:
        """The first reason counts."""
        if not self._ended.done():
            self._ended.set_result(end)

    def drop(self) -> None:
        """Close both connections, whatever `run` has come to."""
        if self._connection is not None:
            self._connection.close()
        self._client.drop()

    def answered(self) -> None:
        """The client has answered a ping."""
        self._unanswered = 0

    async def take(self, message: bytes) -> None:
        """A message of the client; returns when it was passed on, so that the client is slowed down."""
        await self._connected.wait()
        if self._conversation is None or self._ended.done():
            return
        self._is_taking = True
        try:
            await self._conversation.take(message)
        except (ProtocolBroken, RecordingEnded) as error:
            self.end(error.end)
        finally:
            self._is_taking, self._unanswered = False, 0

    async def tick(self) -> None:
        """Ping the client and look at limits; called now and then."""
        now = time.monotonic()
        active_at = self._began if self._conversation is None else self._conversation.active_at
        if self._client.is_gone():
            self.end(CLIENT_LEFT)
        elif self._is_limited and now - active_at > self._idle_seconds:
            self.end(End(f"nothing was typed or shown for {self._idle_seconds:g} s, the limit of this gateway"))
        elif self._is_taking and not self._is_sending and now - self._pinged_at >= STALLED_PING_SECONDS:
            self._poke(now)
        elif now - self._pinged_at >= PING_SECONDS and not self._is_sending and not self._is_taking:
            self._ping(now)
        if self._recording is not None:
            try:
                await self._recording.tick()
            except RecordingEnded as error:
                self.end(error.end)

    async def run(self) -> None:
        with log_context(job=self.redeemed.job_id, session=self.id):
            talk = asyncio.create_task(self._talk())
            await asyncio.wait([talk, self._ended], return_when=asyncio.FIRST_COMPLETED)
            end = self._ended.result() if self._ended.done() else await _result(talk)
            if self._conversation is not None and self._conversation.end is not None:
                end = self._conversation.end
            self.end(end)
            talk.cancel()
            await asyncio.gather(talk, return_exceptions=True)
            self._connected.set()  # who waits to pass on a message stops waiting
            await self._close(end)

    async def _talk(self) -> End:
        redeemed = self.redeemed
        try:
            connection = await connect(self._backend.secret_key, redeemed.endpoint, redeemed.request)
        except RefusedThere as error:
            return End(str(error), exit_code=error.exit_code)
        except NotReached as error:
            return End(str(error))
        self._connection = connection
        if redeemed.kind == PORT_FORWARD:
            self._conversation = PortConversation(connection, self._send)
        else:
            self._conversation = CommandConversation(connection, self._send, self._recording)
        self._connected.set()
        try:
            end = await self._conversation.run()
        except RecordingEnded as error:
            return error.end
        except ConnectionError:
            return CLIENT_LEFT
        return end if end is not LOST else await self._explained()

    async def _explained(self) -> End:
        """The sandbox has gone: say why, once the platform knows."""
        why = await self._backend.why_lost(self.redeemed)
        return End(why) if why else LOST

    async def _send(self, message: bytes) -> None:
        self._is_sending = True
        try:
            await self._client.send(message)
        finally:
            self._is_sending = False

    def _ping(self, now: float) -> None:
        """Not while the client is slow: then a ping waits behind what it has not taken. Nor while its message is passed
        on, which a command may not read for long: its answers wait behind it.
        """
        if self._unanswered >= MOST_UNANSWERED:
            self.end(CLIENT_GONE)
            return
        self._pinged_at, self._unanswered = now, self._unanswered + 1
        with contextlib.suppress(ConnectionError):
            self._client.send_ping()

    def _poke(self, now: float) -> None:
        """The end of a client may wait behind what it has sent: its machine then answers a ping with a reset, which
        `is_gone` sees. A pong is not awaited.
        """
        self._pinged_at = now
        with contextlib.suppress(ConnectionError):
            self._client.send_ping()

    async def _close(self, end: End) -> None:
        """Whatever fails: the recording is stored, and the end is recorded."""
        try:
            await self._hang_up(end)
        except Exception:
            logger.exception("the connections of a session could not be closed in order")
            self.drop()
        if self._recording is not None:
            try:
                await self._recording.finish()
            except RecordingEnded as error:
                end = error.end
            except Exception:
                logger.exception("the last piece of a recording could not be stored")
        await self._backend.finish(self.redeemed, end, self.counts)

    async def _hang_up(self, end: End) -> None:
        if self._connection is not None:
            if end is CLIENT_LEFT and self.redeemed.kind == PORT_FORWARD:
                await self._connection.finish(LAST_SECONDS)
            else:
                self._connection.close()
        talk = self._conversation
        knows = self.redeemed.kind == PORT_FORWARD or (talk is not None and talk.end is not None)
        self._client.close_with(b"" if knows else bytes([STATUS]) + end.status, end.code, end.short_reason)

    def _new_recording(self) -> Recording | None:
        if not self.redeemed.recorded or self.redeemed.kind == PORT_FORWARD:
            return None
        return Recording(lambda number, data: self._backend.store(self.redeemed, number, data), self.redeemed.request)

    @property
    def _is_limited(self) -> bool:
        """A command without a terminal may compute for long, and is not forgotten."""
        return self.redeemed.kind != EXEC or bool(self.redeemed.request.get("tty"))


async def _result(talk: "asyncio.Task[End]") -> End:
    try:
        return await talk
    except Exception:
        logger.exception("a session failed")
        return End("internal error of the gateway; its log says more")
