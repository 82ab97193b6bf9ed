"""What answered requests have used, summed up until it is written."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping

from app.gateway.event_stream import Tokens
from app.services.serving.usage import UsageCounts, UsageKey

FLUSH_SECONDS = 2.0
logger = logging.getLogger(__name__)

Write = Callable[[Mapping[UsageKey, UsageCounts]], Awaitable[None]]


class UsageBook:
    """For one event loop."""

    def __init__(self, write: Write) -> None:
        self._write = write
        self._open: dict[UsageKey, UsageCounts] = {}
        self._writing: asyncio.Task[None] | None = None

    def add(self, key: UsageKey, tokens: Tokens, *, failed: bool) -> None:
        self._merge(
            key,
            UsageCounts(
                requests=1, failures=int(failed), prompt_tokens=tokens.prompt, completion_tokens=tokens.completion
            ),
        )

    def add_tokens(self, key: UsageKey, tokens: Tokens) -> None:
        """Of a request that was added before."""
        self._merge(key, UsageCounts(prompt_tokens=tokens.prompt, completion_tokens=tokens.completion))

    async def run(self) -> None:
        while True:
            await asyncio.sleep(FLUSH_SECONDS)
            await self.flush()

    async def flush(self) -> None:
        """Write what has been added; what can't be written now is kept. Cancelled, it is completed by the next one."""
        if self._writing is not None:
            await asyncio.shield(self._writing)
        self._writing = asyncio.create_task(self._write_open())
        await asyncio.shield(self._writing)

    async def _write_open(self) -> None:
        counts, self._open = self._open, {}
        if not counts:
            return
        try:
            await self._write(counts)
        except Exception:
            logger.warning("the usage of %d keys and models could not be written", len(counts), exc_info=True)
            for key, count in counts.items():
                self._merge(key, count)

    def _merge(self, key: UsageKey, more: UsageCounts) -> None:
        known = self._open.get(key, UsageCounts())
        self._open[key] = UsageCounts(
            requests=known.requests + more.requests,
            failures=known.failures + more.failures,
            prompt_tokens=known.prompt_tokens + more.prompt_tokens,
            completion_tokens=known.completion_tokens + more.completion_tokens,
        )
