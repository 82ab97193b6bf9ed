"""Tokens of whole answers whose clients have left: engines say how many they had made."""

import asyncio
import json
import logging
from collections.abc import Mapping

from tornado.escape import json_decode

from app.gateway.event_stream import Tokens, tokens_of
from app.gateway.exchange import AnswerTooLarge, BrokenExchange, exchange
from app.gateway.limits import KeyLimits
from app.gateway.pool import NotConnected, Pool
from app.gateway.usage_book import UsageBook
from app.security.permissions import Caller
from app.services.serving.endpoints import Endpoint
from app.services.serving.usage import UsageKey

PATH = "/usage"
SECONDS = 10.0  # for an answer
MOST_ASKED = 256  # at a time; of more the tokens are not counted
logger = logging.getLogger(__name__)


class CancelledAnswers:
    """For one event loop."""

    def __init__(self, pool: Pool, usage: UsageBook, limits: KeyLimits) -> None:
        self._pool = pool
        self._usage = usage
        self._limits = limits
        self._asked: set[asyncio.Task[None]] = set()

    def count(self, endpoint: Endpoint, request_id: str, key: UsageKey, caller: Caller) -> None:
        """Ask the engine, which has this connection closed or is about to notice it."""
        if len(self._asked) < MOST_ASKED:
            task = asyncio.create_task(self._count(endpoint, request_id, key, caller))
            self._asked.add(task)
            task.add_done_callback(self._asked.discard)

    async def gone(self, seconds: float) -> None:
        """Wait for what was asked."""
        if self._asked:
            await asyncio.wait(list(self._asked), timeout=seconds)

    async def _count(self, endpoint: Endpoint, request_id: str, key: UsageKey, caller: Caller) -> None:
        try:
            async with asyncio.timeout(SECONDS):
                tokens = await self._tokens(endpoint, request_id)
        except (NotConnected, BrokenExchange, AnswerTooLarge, TimeoutError, ValueError, AttributeError) as error:
            logger.info("the tokens of a cancelled answer are not known: %s", error)
            return
        self._limits.charge(caller, tokens.total)
        self._usage.add_tokens(key, tokens)

    async def _tokens(self, endpoint: Endpoint, request_id: str) -> Tokens:
        said = _Said()
        connection = await self._pool.take(endpoint, fresh=True)
        body = json.dumps({"request_id": request_id}).encode()
        if await exchange(connection, PATH, {"Content-Type": "application/json"}, body, said):
            self._pool.give_back(connection)
        return tokens_of(json_decode(bytes(said.body)).get("usage")) if said.http_status == 200 else Tokens()


class _Said:
    def __init__(self) -> None:
        self.http_status = 0
        self.body = bytearray()

    def head(self, status: int, headers: Mapping[str, str]) -> None:
        del headers
        self.http_status = status

    def data(self, chunk: bytes) -> None:
        self.body += chunk
