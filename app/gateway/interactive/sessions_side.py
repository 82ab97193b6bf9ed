"""All of a gateway that serves sessions, as its server starts and stops it."""

from typing import Any

from app.gateway.interactive.open_sessions import OpenSessions
from app.gateway.interactive.session_backend import SessionBackend
from app.gateway.interactive.session_handler import PATH, SessionHandler
from app.gateway.open_requests import OpenRequests
from app.services.requests.control_plane import ControlPlane
from config.settings import Settings


class SessionsSide:
    """For one event loop: run `watch`, and `close` with the seconds that sessions may still take."""

    def __init__(self, settings: Settings, plane: ControlPlane, slots: OpenRequests, *, gateway_id: str) -> None:
        gateway = settings.gateway
        self._backend = SessionBackend(
            plane, settings.security.secret_key, gateway_id=gateway_id, threads=gateway.threads
        )
        self._sessions = OpenSessions(self._backend, slots, url=gateway.sessions_url)
        self._idle_seconds = float(gateway.session_idle_seconds)

    @property
    def routes(self) -> list[Any]:
        given = {"sessions": self._sessions, "backend": self._backend, "idle_seconds": self._idle_seconds}
        return [(PATH, SessionHandler, given)]

    async def watch(self) -> None:
        await self._sessions.watch()

    async def drain(self, *, seconds: float) -> None:
        await self._sessions.close(seconds=seconds)

    def close(self) -> None:
        self._backend.close()
