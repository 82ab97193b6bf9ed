"""The sessions that a gateway has open: how many there may be, and who ends them."""

import asyncio
import logging
import time

from app.gateway.failures import NoReplica
from app.gateway.interactive.ends import CLIENT_LEFT, STOPPING, End
from app.gateway.interactive.open_session import OpenSession
from app.gateway.interactive.session_backend import SessionBackend
from app.gateway.open_requests import OpenRequests
from app.services.interactive.attending import RedeemedSession, Traffic

LOOK_SECONDS = 0.4  # a session ends within a second after its end is asked for, or its key is revoked
TICK_SECONDS = 1.0
REPORT_SECONDS = 10.0
END_SECONDS = 5.0  # in which those that were asked to end have ended
logger = logging.getLogger(__name__)


class SessionsFull(NoReplica):
    """This gateway has as many sessions open as it may, or is stopping."""

    code = "UNAVAILABLE"


class OpenSessions:
    """For one event loop. ``slots`` also count connections to ports."""

    def __init__(self, backend: SessionBackend, slots: OpenRequests, *, url: str) -> None:
        self.url = url  # by which people reach this gateway, or ""
        self._backend = backend
        self._slots = slots
        self._open: dict[str, OpenSession] = {}
        self._runs: set[asyncio.Task[None]] = set()
        self.is_closing = False

    @property
    def count(self) -> int:
        return len(self._open)

    def enter(self) -> None:
        """Count one more until `leave`. Raises SessionsFull."""
        if self.is_closing:
            raise SessionsFull("this gateway is stopping; open another session")
        if not self._slots.enter():
            raise SessionsFull("this gateway has as many sessions open as it may; end one, or retry later")

    def leave(self) -> None:
        self._slots.leave()

    def begin(self, session: OpenSession) -> None:
        """Run it; it counts until its end."""
        self._open[session.id] = session
        run = asyncio.create_task(self._run(session))
        self._runs.add(run)
        run.add_done_callback(self._runs.discard)

    def forget(self, redeemed: RedeemedSession) -> None:
        """Record the end of one whose client left before it began."""
        done = asyncio.create_task(self._backend.finish(redeemed, CLIENT_LEFT, Traffic()))
        self._runs.add(done)
        done.add_done_callback(self._runs.discard)

    async def watch(self) -> None:
        """Until cancelled: end what must end, and report what is open."""
        ticked_at = reported_at = time.monotonic()
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            now = time.monotonic()
            try:
                await self._look()
                if now - ticked_at >= TICK_SECONDS:
                    ticked_at = now
                    await asyncio.gather(*(each.tick() for each in list(self._open.values())))
                if now - reported_at >= REPORT_SECONDS:
                    reported_at = now
                    await self._report()
            except Exception:
                logger.warning("the open sessions could not be looked at; trying again", exc_info=True)

    async def close(self, *, seconds: float) -> None:
        """Take no new ones, let those that are open continue for so long, then end them."""
        self.is_closing = True
        if self._runs:
            await asyncio.wait(list(self._runs), timeout=seconds)
        for session in list(self._open.values()):
            session.end(STOPPING)
        if self._runs:
            await asyncio.wait(list(self._runs), timeout=END_SECONDS)

    async def _run(self, session: OpenSession) -> None:
        try:
            await session.run()
        except Exception:
            logger.exception("the end of a session could not be recorded")
            session.drop()  # what is not counted any more must not stay open
        finally:
            self._open.pop(session.id, None)
            self.leave()

    async def _look(self) -> None:
        if self._open:
            for session_id, reason in (await self._backend.verdicts(list(self._open))).items():
                if session_id in self._open:
                    self._open[session_id].end(End(reason))

    async def _report(self) -> None:
        if self._open:
            await self._backend.report({session_id: each.counts for session_id, each in self._open.items()})
