"""What sessions ask the database and the storage, on a few threads, so that the gateway's event loop never waits."""

import asyncio
import time
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from app.gateway.interactive.ends import End
from app.gateway.interactive.sandbox_connection import NotReached, RefusedThere, connect
from app.services.interactive import attending, recordings
from app.services.interactive.attending import RedeemedSession, Traffic
from app.services.requests.control_plane import ControlPlane

WHY_SECONDS = 5.0  # in which the platform has noticed that an attempt is over
WHY_AGAIN_SECONDS = 0.1
_Value = TypeVar("_Value")


class SessionBackend:
    """Thread-safe; the coroutines are for one event loop."""

    def __init__(self, plane: ControlPlane, secret_key: str, *, gateway_id: str, threads: int) -> None:
        self.secret_key = secret_key
        self._plane = plane
        self._gateway_id = gateway_id
        # Pieces of recordings have threads of their own: a slow storage delays no end of a session.
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix="gateway-sessions")
        self._writers = ThreadPoolExecutor(threads, thread_name_prefix="gateway-recordings")

    async def redeem(self, session_id: str, ticket: str, *, origin: str) -> RedeemedSession:
        """The session of this ticket. Raises as `attending.redeem`."""
        given = {"session_id": session_id, "gateway_id": self._gateway_id, "origin": origin}
        return await self._on_thread(lambda: attending.redeem(self._plane, self.secret_key, ticket, **given))

    async def verdicts(self, session_ids: Collection[str]) -> Mapping[str, str]:
        """Why sessions must end, for those that must."""
        return await self._on_thread(lambda: attending.verdicts(self._plane.db, session_ids))

    async def why_lost(self, redeemed: RedeemedSession) -> str:
        """Why the sandbox of this session is gone: the platform may learn it a moment later than we. Empty: unknown, or
        the sandbox is there, and only its session server was another one.
        """
        until = time.monotonic() + WHY_SECONDS
        while time.monotonic() < until:
            answers = await self._answers_again(redeemed)
            if why := await self._on_thread(lambda: attending.why_ended(self._plane.db, redeemed.session_id)):
                return why
            if answers:
                break
            await asyncio.sleep(WHY_AGAIN_SECONDS)
        return ""

    async def _answers_again(self, redeemed: RedeemedSession) -> bool:
        """Whether a session server is there. It is asked for nothing, which it refuses."""
        try:
            async with asyncio.timeout(WHY_AGAIN_SECONDS * 5):
                (await connect(self.secret_key, redeemed.endpoint, {"type": "none"})).close()
        except RefusedThere:
            return True
        except (NotReached, TimeoutError):
            return False
        return True

    async def report(self, counts: Mapping[str, Traffic]) -> None:
        await self._on_thread(lambda: attending.beat(self._plane.db, counts))

    async def finish(self, redeemed: RedeemedSession, end: End, counts: Traffic) -> None:
        await self._on_thread(
            lambda: attending.finish(
                self._plane.db, redeemed.session_id, reason=end.reason, exit_code=end.exit_code, traffic=counts
            )
        )

    async def store(self, redeemed: RedeemedSession, number: int, data: bytes) -> None:
        """A piece of the recording."""
        await asyncio.get_running_loop().run_in_executor(self._writers, self._store, redeemed, number, data)

    def close(self) -> None:
        self._threads.shutdown()
        self._writers.shutdown()

    def _store(self, redeemed: RedeemedSession, number: int, data: bytes) -> None:
        storage = self._plane.storage
        recordings.write_piece(storage, redeemed.job_id, redeemed.session_id, number=number, data=data)
        attending.recorded_more(self._plane.db, redeemed.session_id, len(data))

    async def _on_thread(self, function: Callable[[], _Value]) -> _Value:
        return await asyncio.get_running_loop().run_in_executor(self._threads, function)
