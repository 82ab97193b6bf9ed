"""Tells other gateways what keys have used of their limits, so that all of them count together."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence

from app.gateway.limits import KeyLimits
from app.security.shared_levels import SharedLevels, Withdrawal

SHARE_SECONDS = 1.0
logger = logging.getLogger(__name__)

_Levels = list[float] | None
OnThread = Callable[[Callable[[Sequence[Withdrawal]], _Levels], Sequence[Withdrawal]], Awaitable[_Levels]]


class LimitSharing:
    """For one event loop. A request never waits for it: within a second several gateways may let too much through,
    which is then missing from the key's bucket.
    """

    def __init__(self, limits: KeyLimits, levels: SharedLevels, on_thread: OnThread) -> None:
        self._buckets = (limits.requests, limits.tokens)
        self._levels = levels
        self._on_thread = on_thread
        self._is_failing = False

    async def run(self) -> None:
        while True:
            await asyncio.sleep(SHARE_SECONDS)
            await self.share()

    async def share(self) -> None:
        works = fails = False
        for buckets in self._buckets:
            taken = buckets.unshared()
            levels: _Levels = None
            try:
                levels = await self._on_thread(self._levels.exchange, taken) if taken else None
                works = works or levels is not None
            except Exception:
                if not (self._is_failing or fails):  # once until it works again
                    logger.warning("what keys have used could not be shared with other gateways", exc_info=True)
                fails = True
            finally:  # also when the gateway stops: nothing is forgotten
                buckets.shared(taken, levels)
        self._is_failing = fails or (self._is_failing and not works)

    async def close(self) -> None:
        """Share what there is, so that a gateway that takes the place of this one knows of it."""
        await self.share()
        self._levels.close()
