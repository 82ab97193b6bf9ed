"""Levels of buckets in Redis, for limits that each gateway keeps by itself and tells the others of."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import redis

logger = logging.getLogger(__name__)

TIMEOUT_SECONDS = 0.5
_PREFIX = "trainyard:rate:gateway:"
# A bucket is full when nothing is stored. It refills within a minute by the server's clock, and may be overdrawn.
_TAKE = """
local most, amount = tonumber(ARGV[1]), tonumber(ARGV[2])
local time = redis.call('TIME')
local now = time[1] + time[2] / 1000000
local stored = redis.call('HMGET', KEYS[1], 'level', 'at')
local level = most
if stored[1] then level = math.min(most, stored[1] + math.max(0, now - stored[2]) * most / 60) end
level = level - amount
redis.call('HSET', KEYS[1], 'level', string.format('%.6f', level), 'at', string.format('%.6f', now))
redis.call('PEXPIRE', KEYS[1], math.ceil((most - level) / most * 60000) + 1000)
return string.format('%.6f', level)
"""


@dataclass(frozen=True, kw_only=True)
class Withdrawal:
    """What was taken from the bucket of this name since the last time."""

    name: str
    per_minute: int
    amount: float


class SharedLevels:
    """For one thread at a time. Redis' client is loaded when there is something to share.

    The first use raises ValueError for a URL that is not one of Redis: the process checks it at its start.
    """

    def __init__(self, url: str) -> None:
        self._url = url
        self._client: redis.Redis | None = None
        self._is_unavailable = False

    def exchange(self, taken: Sequence[Withdrawal]) -> list[float] | None:
        """Take these amounts; the levels that are left. None while Redis is unavailable or slow: each counts by itself.

        What a slow Redis has taken all the same is taken again by the next call: never too little.
        """
        import redis  # noqa: PLC0415 – needs 8 MB, and most gateways have no use for it

        if self._client is None:
            self._client = redis.Redis.from_url(
                self._url, socket_timeout=TIMEOUT_SECONDS, socket_connect_timeout=TIMEOUT_SECONDS, retry=None
            )
        try:
            levels = self._levels(self._client, taken)
        except (redis.RedisError, OSError) as error:
            if not self._is_unavailable:
                logger.warning(
                    "Redis is unavailable for the limits of keys (%s): each gateway counts by itself",
                    type(error).__name__,
                )
            self._is_unavailable = True
            return None
        self._is_unavailable = False
        return levels

    def close(self) -> None:
        if self._client is not None:
            self._client.close()

    def _levels(self, client: "redis.Redis", taken: Sequence[Withdrawal]) -> list[float]:
        script: Any = client.register_script(_TAKE)
        with client.pipeline(transaction=False) as pipeline:
            for each in taken:
                script(keys=[f"{_PREFIX}{each.name}"], args=[each.per_minute, each.amount], client=pipeline)
            return [float(level) for level in pipeline.execute()]
