"""The gateway's HTTP server: requests to models, its health, and its figures."""

import asyncio
import contextlib
import logging
from types import TracebackType
from typing import Any

from tornado.httpserver import HTTPServer
from tornado.web import Application, RequestHandler

from app.database.from_settings import open_database
from app.domain.errors import NotFound
from app.domain.ids import new_id
from app.gateway.answer_handler import KINDS, AnswerHandler, GatewayContext
from app.gateway.backend import GatewayBackend
from app.gateway.cancelled import CancelledAnswers
from app.gateway.dispatch import Dispatch
from app.gateway.failures import failure_of
from app.gateway.figures import CONTENT_TYPE, GatewayFigures
from app.gateway.interactive.ports_router import PortsRouter
from app.gateway.interactive.ports_side import PortsSide
from app.gateway.interactive.sessions_side import SessionsSide
from app.gateway.limit_sharing import LimitSharing
from app.gateway.limits import KeyLimits
from app.gateway.loads import Loads
from app.gateway.open_requests import OpenRequests
from app.gateway.pool import Pool
from app.gateway.samples import SampleBook
from app.gateway.usage_book import UsageBook
from app.security.shared_levels import SharedLevels
from app.services.operations.control_plane import control_plane
from app.services.requests.control_plane import ControlPlane
from app.services.requests.wakeups import Dispatcher
from config.gateway import GatewaySettings
from config.settings import Settings

SWEEP_SECONDS = 5.0
BODY_SECONDS = 60.0  # in which a body must arrive
IDLE_CONNECTION_SECONDS = 75.0
MOST_BODIES = 32  # of the largest size, that a gateway holds at a time
END_SECONDS = 1.0  # in which clients get the error
UNLIMITED_BYTES = 1 << 40  # the handler limits bodies, so that it can say so
_SHOWN = 8  # characters of a gateway's id in names of files
logger = logging.getLogger(__name__)


class GatewayServer:
    """For one event loop: `start`, then `close` with the seconds that answers may still take."""

    def __init__(self, settings: Settings, plane: ControlPlane) -> None:
        gateway_id = new_id("gateway")
        self._backend = GatewayBackend(settings, plane, gateway_id=gateway_id)
        self._samples = SampleBook(self._backend.store_sample, gateway_id[-_SHOWN:])
        self._pool = Pool(settings.security.secret_key)
        self._loads = Loads(self._backend.report)
        self._usage = UsageBook(self._backend.add_usage)
        self._dispatch = Dispatch(self._backend, self._pool, self._loads)
        self._figures = GatewayFigures()
        self._open_requests = OpenRequests(
            settings.gateway.max_requests, most_bytes=MOST_BODIES * settings.gateway.max_body_bytes
        )
        self._figures.watch(lambda: self._loads.open)
        self._session_slots = OpenRequests(settings.gateway.most_sessions, most_bytes=0)  # of sessions and ports
        self._sessions = SessionsSide(settings, plane, self._session_slots, gateway_id=gateway_id)
        self._ports = PortsSide(settings, plane, self._backend, self._session_slots)
        limits = _limits_of(settings.gateway)
        levels = SharedLevels(settings.broker.url) if settings.broker.url else None
        self._sharing = LimitSharing(limits, levels, self._backend.on_thread) if levels is not None else None
        self._cancelled = CancelledAnswers(self._pool, self._usage, limits)
        gateway = GatewayContext(
            settings=settings,
            backend=self._backend,
            dispatch=self._dispatch,
            limits=limits,
            usage=self._usage,
            samples=self._samples,
            cancelled=self._cancelled,
            figures=self._figures,
            open_requests=self._open_requests,
        )
        self.http = HTTPServer(
            PortsRouter(self._ports, self._application(gateway)),
            max_body_size=UNLIMITED_BYTES,
            body_timeout=BODY_SECONDS,
            idle_connection_timeout=IDLE_CONNECTION_SECONDS,
        )
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        self._tasks = [
            asyncio.create_task(each)
            for each in (
                self._loads.run(),
                self._usage.run(),
                self._samples.run(),
                self._sweep(),
                self._sessions.watch(),
                self._ports.watch(),
                *([self._sharing.run()] if self._sharing is not None else []),
            )
        ]

    async def close(self, *, seconds: float) -> None:
        """Take no new requests, refuse those that wait, let answers end for so long; then end them with an error."""
        self.http.stop()
        self._dispatch.is_closing = True
        sessions = asyncio.create_task(self._sessions.drain(seconds=seconds))
        ports = asyncio.create_task(self._ports.close(seconds=seconds))
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._open_requests.gone(), seconds)
        for end in list(self._open_requests.enders):
            end()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._open_requests.gone(), END_SECONDS)
        await sessions
        await ports
        await self.http.close_all_connections()
        await self._cancelled.gone(END_SECONDS)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._loads.report()
        await self._usage.flush()
        await self._samples.flush()
        if self._sharing is not None:
            await self._sharing.close()
        self._pool.close()
        self._sessions.close()
        self._backend.close()

    def _application(self, gateway: GatewayContext) -> Application:
        names = "|".join(KINDS)
        routes: list[Any] = [
            (rf"/(?:openai/)?v1/({names})", AnswerHandler, {"gateway": gateway}),
            *self._sessions.routes,
            (r"/health", GatewayHealthHandler, {"dispatch": self._dispatch}),
            (r"/metrics", MetricsHandler, {"figures": self._figures}),
        ]
        return Application(routes, default_handler_class=MissingHandler, log_function=lambda _: None)

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(SWEEP_SECONDS)
            self._pool.sweep()


class GatewayHealthHandler(RequestHandler):
    """200 until the gateway stops."""

    def initialize(self, dispatch: Dispatch) -> None:
        self._dispatch = dispatch

    def get(self) -> None:
        self.set_status(503 if self._dispatch.is_closing else 200)
        self.write({"status": "stopping" if self._dispatch.is_closing else "live"})


class MetricsHandler(RequestHandler):
    def initialize(self, figures: GatewayFigures) -> None:
        self._figures = figures

    def get(self) -> None:
        self.set_header("Content-Type", CONTENT_TYPE)
        self.write(self._figures.text())


class MissingHandler(RequestHandler):
    """Any other path."""

    def prepare(self) -> None:
        paths = ", ".join(kind.path for kind in KINDS.values())
        failure = failure_of(NotFound(f"a gateway answers POST {paths}; everything else is at the API"))
        self.set_status(failure.status)
        self.set_header("Content-Type", "application/json")
        self.finish(failure.body)

    def log_exception(
        self, typ: type[BaseException] | None, value: BaseException | None, tb: TracebackType | None
    ) -> None:
        del typ, tb
        logger.error("a request failed", exc_info=value)


def _limits_of(settings: GatewaySettings) -> KeyLimits:
    return KeyLimits(requests_per_minute=settings.requests_per_minute, tokens_per_minute=settings.tokens_per_minute)


def plane_of(settings: Settings) -> ControlPlane:
    """What the services need; nothing connects yet."""
    return control_plane(settings, open_database(settings.database), Dispatcher(settings))
