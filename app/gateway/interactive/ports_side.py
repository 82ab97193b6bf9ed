"""All of a gateway that serves ports of jobs: a host of its own, on which nothing else is served."""

import asyncio
import contextlib
import logging
import time
from collections import Counter
from collections.abc import Coroutine
from typing import Any, Protocol

from app.domain.errors import Conflict, Forbidden, NotFound, TrainyardError, Unauthenticated
from app.domain.port_addresses import PortAddress, PortsHost
from app.gateway.backend import GatewayBackend
from app.gateway.interactive.port_access import PortAccess, PortGrant
from app.gateway.interactive.port_connections import PortConnections
from app.gateway.interactive.port_refusals import PortRefused
from app.gateway.open_requests import OpenRequests
from app.host.pipes import Pipes
from app.security.relay_tokens import notebook_token
from app.services.interactive import ports
from app.services.interactive.ports import OpenPort
from app.services.requests.control_plane import ControlPlane
from config.settings import Settings

LOOK_SECONDS = 0.4  # after which a request whose key was revoked, or whose job has ended, is ended
SHARE = 4  # a job has at most one in so many of the connections of a gateway
END_SECONDS = 1.0
_NOT_ANY_MORE = (Unauthenticated, Forbidden, NotFound, Conflict)
logger = logging.getLogger(__name__)


class OpenExchange(Protocol):
    """A request for a port that is open."""

    client: str
    active_at: float  # by the monotonic clock
    access: PortGrant | None  # None until it is granted

    @property
    def address(self) -> PortAddress: ...

    @property
    def is_tunnel(self) -> bool: ...

    def has_left(self, now: float) -> bool: ...

    def check_upload(self, now: float) -> None: ...

    def end(self) -> None: ...


class PortsSide:
    """For one event loop: run `watch`, and `close` with the seconds that answers may still take."""

    def __init__(self, settings: Settings, plane: ControlPlane, backend: GatewayBackend, slots: OpenRequests) -> None:
        gateway = settings.gateway
        self.host, self._url = PortsHost(gateway.ports_url), gateway.ports_url
        self.access = PortAccess(backend, plane, settings.security.secret_key)
        self.connections = PortConnections(settings.security.secret_key, settings.data.dir)
        self.pipes = Pipes()
        self.most_body_bytes = gateway.most_port_body_bytes
        self.proxies = settings.api.proxies
        self.dashboard = settings.web.url if settings.web.enabled else ""
        self._secret_key = settings.security.secret_key
        self._silence_seconds = gateway.silence_seconds
        self._slots = slots
        self._most_of_job = max(1, gateway.most_sessions // SHARE)
        self._open: set[OpenExchange] = set()
        self._admitted: set[OpenExchange] = set()
        self._of_job: Counter[str] = Counter()
        self._runs: set[asyncio.Task[None]] = set()
        self._is_closing = False

    @property
    def what_is_here(self) -> str:
        where = "NAME-ID." + "HOST/" if self.host.has_own_origins else "/jobs/JOB/ports/NAME/"
        return f"here are ports of jobs, at {where}; `trainyard ports JOB` lists those of a job"

    @property
    def misdirected(self) -> PortRefused:
        """For requests for ports that come by another host, whose cookies the pages of jobs must not share."""
        return PortRefused(421, f"ports of jobs are served at {self._url} alone" if self.host else ports.NO_PORTS)

    def enter(self, exchange: OpenExchange) -> None:
        """Count one more until `leave`. Raises PortRefused."""
        if self._is_closing:
            raise PortRefused(503, "this gateway is stopping; ask again", Retry_After="1")
        if not self._slots.enter():
            raise PortRefused(503, "this gateway has as many connections open as it may; retry later", Retry_After="2")
        self._open.add(exchange)

    def admit(self, exchange: OpenExchange) -> None:
        """Count one that may open the port for its job, too: strangers take nothing of its share.

        Raises PortRefused.
        """
        job_id = exchange.address.job_id
        if self._of_job[job_id] >= self._most_of_job:
            raise PortRefused(
                503, f"{self._most_of_job} connections to ports of this job are open, the limit of a gateway"
            )
        self._of_job[job_id] += 1
        self._admitted.add(exchange)

    def leave(self, exchange: OpenExchange) -> None:
        self._open.discard(exchange)
        self._slots.leave()
        if exchange not in self._admitted:
            return
        self._admitted.remove(exchange)
        job_id = exchange.address.job_id
        self._of_job[job_id] -= 1
        if not self._of_job[job_id]:
            del self._of_job[job_id]

    def run(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._runs.add(task)
        task.add_done_callback(self._runs.discard)
        return task

    def notebook_token(self, opened: OpenPort) -> str:
        """By which the notebook server of a job knows us."""
        return notebook_token(self._secret_key, job_id=opened.job_id, attempt=opened.attempt)

    async def watch(self) -> None:
        """Until cancelled: end what is not permitted any more."""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            trouble: Exception | None = None
            for exchange in list(self._open):
                try:
                    if exchange in self._open and not await self._is_permitted(exchange):
                        exchange.end()
                except Exception as error:  # noqa: BLE001 – of one, which keeps none of the others open
                    trouble = error
            if trouble is not None:
                logger.warning("not all open ports could be looked at; trying again", exc_info=trouble)

    async def close(self, *, seconds: float) -> None:
        """Take no new requests, let answers end for so long, then end them. WebSockets end at once."""
        self._is_closing = True
        for exchange in list(self._open):
            if exchange.is_tunnel:
                exchange.end()
        if self._runs:
            await asyncio.wait(list(self._runs), timeout=seconds)
        for exchange in list(self._open):
            exchange.end()
        if self._runs:
            await asyncio.wait(list(self._runs), timeout=END_SECONDS)
        self.connections.close()
        self.pipes.close()

    async def _is_permitted(self, exchange: OpenExchange) -> bool:
        now = time.monotonic()
        exchange.check_upload(now)
        if exchange.has_left(now) or (not exchange.is_tunnel and now - exchange.active_at > self._silence_seconds):
            return False
        if (access := exchange.access) is None:
            return True
        with contextlib.suppress(TrainyardError):
            try:
                opened = await self.access.again(exchange.address, access.credential, exchange.client)
            except _NOT_ANY_MORE:
                return False
            return opened.attempt == access.opened.attempt and opened.port == access.opened.port
        return True
