"""Token buckets in Redis, for the rate limits that all API processes share."""

import logging
import time
import weakref
from collections.abc import Callable
from typing import Any

import redis

from app.domain.token_bucket import Draw, Rate
from app.security.rate_limits import LocalBuckets

logger = logging.getLogger(__name__)

RETRY_SECONDS = 1.0  # pause before an unavailable Redis is tried again
TIMEOUT_SECONDS = 0.2
# The same algorithm as `app.domain.token_bucket.draw`, on the server's clock. Numbers are stored as decimal strings.
_DRAW = """
local rate, burst, requested = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local time = redis.call('TIME')
local now = time[1] + time[2] / 1000000
local stored = redis.call('HMGET', KEYS[1], 'tokens', 'at')
local tokens = burst
if stored[1] then tokens = math.min(burst, stored[1] + math.max(0, now - stored[2]) * rate) end
local granted = math.min(requested, math.floor(tokens))
redis.call('HSET', KEYS[1], 'tokens', string.format('%.6f', tokens - granted), 'at', string.format('%.6f', now))
redis.call('PEXPIRE', KEYS[1], math.ceil(burst / rate * 1000) + 1000)
local wait = 0
if granted < 1 then wait = math.ceil((1 - tokens) / rate * 1000) end
return {granted, wait}
"""


class SharedBuckets:
    """Token buckets in Redis; falls back to local ones while Redis is unavailable or slow."""

    def __init__(self, url: str, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._local = LocalBuckets(clock)
        client = redis.Redis.from_url(
            url, socket_timeout=TIMEOUT_SECONDS, socket_connect_timeout=TIMEOUT_SECONDS, retry=None
        )
        self._script: Any = client.register_script(_DRAW)
        weakref.finalize(self, client.close)  # a Flask application has no shutdown hook
        self._is_unavailable, self._retry_at = False, 0.0

    def draw(self, name: str, rate: Rate, requested: int) -> Draw:
        now = self._clock()
        if self._is_unavailable:
            if now < self._retry_at:
                return self._local.draw(name, rate, requested)
            self._retry_at = now + RETRY_SECONDS  # only this request retries Redis; the others do not wait
        try:
            granted, wait = self._script(keys=[f"trainyard:rate:{name}"], args=[rate.per_second, rate.burst, requested])
        except (redis.RedisError, OSError) as error:
            if not self._is_unavailable:
                logger.warning(
                    "Redis is unavailable for rate limits (%s): each API process counts separately",
                    type(error).__name__,
                )
            self._is_unavailable, self._retry_at = True, self._clock() + RETRY_SECONDS
            return self._local.draw(name, rate, requested)
        self._is_unavailable = False
        return Draw(int(granted), int(wait) / 1000)
