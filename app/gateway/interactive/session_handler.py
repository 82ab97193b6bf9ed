"""The WebSocket of a session: lets in who has its ticket, and joins it with the session."""

import asyncio
import contextlib
import logging
import re
from types import TracebackType
from typing import Any
from urllib.parse import urlsplit

from tornado.iostream import IOStream
from tornado.websocket import WebSocketClosedError, WebSocketHandler

from app.domain.errors import CredentialsMissing, Forbidden, InvalidRequest
from app.gateway.interactive import client_sockets
from app.gateway.interactive.ends import CLIENT_LEFT, PROTOCOL, End
from app.gateway.interactive.open_session import OpenSession
from app.gateway.interactive.open_sessions import OpenSessions
from app.gateway.interactive.refusals import RefusalAnswer, UpgradeRequired, refusal_of
from app.gateway.interactive.session_backend import SessionBackend
from app.http.envelope import new_request_id
from app.services.interactive.attending import RedeemedSession
from trainyard.protocol.interactive import MAX_PAYLOAD, PAGE_TICKET
from trainyard.protocol.interactive import PROTOCOL as SUBPROTOCOL

PATH = r"/v1/sessions/([^/]{1,64})/stream"
MOST_TICKET_BYTES = 1024
SWITCHED = 101
_KEY = re.compile(r"[A-Za-z0-9+/]{22}==")
_BEARER = re.compile(r"Bearer ([\x21-\x7e]+)", re.IGNORECASE)
logger = logging.getLogger(__name__)


class SessionHandler(WebSocketHandler):
    """One session."""

    SUPPORTED_METHODS = ("GET",)

    def initialize(self, sessions: OpenSessions, backend: SessionBackend, idle_seconds: float) -> None:
        self._sessions = sessions
        self._backend = backend
        self._idle_seconds = idle_seconds
        self._request_id = new_request_id()
        self._redeemed: RedeemedSession | None = None
        self._session: OpenSession | None = None
        self._is_counted = False
        self._has_left = False
        self._page_origin = ""  # of a page whose ticket names it

    @property
    def max_message_size(self) -> int:
        return MAX_PAYLOAD + 1

    def set_default_headers(self) -> None:
        self.clear_header("Server")
        self.set_header("Cache-Control", "private, no-store")
        self.set_header("X-Content-Type-Options", "nosniff")

    async def prepare(self) -> None:
        self.set_header("X-Request-ID", self._request_id)
        try:
            ticket, origin = self._ticket()
            self._sessions.enter()
            self._is_counted = True
            self._redeemed = await self._backend.redeem(self.path_args[0], ticket, origin=origin)
            self._page_origin = origin
            if self._has_left:
                raise InvalidRequest("the client has closed the connection")
        except Exception as error:  # noqa: BLE001 – every failure is answered
            self._refuse(error)

    def check_origin(self, origin: str) -> bool:
        """A page needs a ticket that names its origin. Some clients, which send theirs in a header as pages cannot,
        name the host that they ask.
        """
        if self._page_origin:
            return origin == self._page_origin
        ours = {self.request.host.lower(), urlsplit(self._sessions.url).netloc.lower()}
        return urlsplit(origin).netloc.lower() in ours - {""}

    def select_subprotocol(self, subprotocols: list[str]) -> str | None:
        return SUBPROTOCOL if SUBPROTOCOL in subprotocols else None

    async def open(self, *_: str, **__: str) -> None:
        self.set_nodelay(True)
        client_sockets.watch(self._stream)
        if self._redeemed is None:  # its client has left
            self.close()
            return
        self._session = OpenSession(self._redeemed, self, self._backend, idle_seconds=self._idle_seconds)
        self._sessions.begin(self._session)

    async def on_message(self, message: str | bytes) -> None:
        if self._session is None:
            return
        if isinstance(message, str):
            self._session.end(End("messages are binary", PROTOCOL))
        else:
            await self._session.take(message)

    def on_pong(self, data: bytes) -> None:
        del data
        if self._session is not None:
            self._session.answered()

    def on_close(self) -> None:
        """Also of a connection that never became a WebSocket."""
        self._has_left = True
        if self._session is not None:
            self._session.end(CLIENT_LEFT)
        else:
            self._abandon()

    def on_finish(self) -> None:
        if self.get_status() != SWITCHED:
            self._abandon()

    async def send(self, message: bytes) -> None:
        try:
            await self.write_message(message, binary=True)
        except WebSocketClosedError as error:
            raise ConnectionError("the client has closed the connection") from error

    def is_gone(self) -> bool:
        """Tornado does not notice while a message is passed on: a command may not read its input for long."""
        return client_sockets.has_left(client_sockets.of(self._stream))

    @property
    def _stream(self) -> IOStream | None:
        return getattr(self.ws_connection, "stream", None)

    def send_ping(self) -> None:
        try:
            self.ping()
        except WebSocketClosedError as error:
            raise ConnectionError("the client has closed the connection") from error

    def close_with(self, last: bytes, code: int, reason: str) -> None:
        with contextlib.suppress(WebSocketClosedError):
            if last:
                self.write_message(last, binary=True).add_done_callback(_seen)
        self.close(code, reason)

    def drop(self) -> None:
        if self._stream is not None:
            client_sockets.reset(self._stream)

    def write_error(self, status_code: int, **_: Any) -> None:
        """For what the server itself refuses, such as another method."""
        refusal = refusal_of(InvalidRequest("open a WebSocket here, with GET"), self._request_id)
        self._answer(refusal, status_code)

    def log_exception(
        self, typ: type[BaseException] | None, value: BaseException | None, tb: TracebackType | None
    ) -> None:
        del typ, tb
        logger.error("a session failed", exc_info=value)

    def _ticket(self) -> tuple[str, str]:
        """What the request shows, when it can become a session: a ticket, and the origin of the page that shows it."""
        headers = self.request.headers
        upgrades = "upgrade" in [each.strip().lower() for each in headers.get("Connection", "").split(",")]
        is_websocket = upgrades and headers.get("Upgrade", "").lower() == "websocket"
        if not is_websocket or headers.get("Sec-WebSocket-Version") != "13":
            raise UpgradeRequired("this is the address of a session: open it as a WebSocket, version 13")
        if not _KEY.fullmatch(headers.get("Sec-WebSocket-Key", "")):
            raise InvalidRequest("the header Sec-WebSocket-Key is missing, or is not 16 bytes as base64")
        offered = [each.strip() for each in headers.get("Sec-WebSocket-Protocol", "").split(",")]
        if SUBPROTOCOL not in offered:
            raise InvalidRequest(f"offer {SUBPROTOCOL} in the header Sec-WebSocket-Protocol")
        origin = headers.get("Origin")
        if shown := self._ticket_of_page(offered):
            if not origin:
                raise Forbidden("a subprotocol with a ticket is for pages, which name their origin; see Authorization")
            return shown, origin
        if origin is not None and not self.check_origin(origin):
            raise Forbidden("sessions are not opened by pages of other sites; clients send no header Origin")
        bearer = self._bearer()
        if bearer is None or len(bearer) > MOST_TICKET_BYTES:
            raise CredentialsMissing("send the session's ticket in the header Authorization: Bearer TICKET")
        return bearer, ""

    def _bearer(self) -> str | None:
        found = _BEARER.fullmatch(self.request.headers.get("Authorization", ""))
        return found[1] if found is not None else None

    def _ticket_of_page(self, offered: list[str]) -> str:
        """The ticket among the subprotocols; empty without one, and where the header Authorization has one.

        Browsers add a header of their own where a proxy asks for a password: `Authorization: Basic`.
        """
        shown = [each[len(PAGE_TICKET) :] for each in offered if each.startswith(PAGE_TICKET)]
        if not shown or self._bearer() is not None:
            return ""
        if len(shown) > 1 or len(shown[0]) > MOST_TICKET_BYTES:
            raise InvalidRequest(f"offer one subprotocol {PAGE_TICKET}TICKET")
        return shown[0]

    def _refuse(self, error: Exception) -> None:
        self._answer(refusal_of(error, self._request_id))

    def _answer(self, refusal: RefusalAnswer, status: int | None = None) -> None:
        self.set_status(status or refusal.status)
        for name, value in refusal.headers.items():
            self.set_header(name, value)
        self.set_header("Content-Type", "application/json")
        self.finish(refusal.body)

    def _abandon(self) -> None:
        """It did not become a session, or its client left before it was one."""
        if self._is_counted and self._session is None:
            self._is_counted = False
            self._sessions.leave()
        if self._redeemed is not None and self._session is None:
            redeemed, self._redeemed = self._redeemed, None
            self._sessions.forget(redeemed)


def _seen(sent: "asyncio.Future[None]") -> None:
    """The client may have left."""
    if not sent.cancelled():
        sent.exception()
