"""Rate limits: one bucket for each key, shared by all API processes through Redis, or of this process without it."""

import logging
import math
import threading
import time
import weakref
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import redis

from app.domain.errors import LimitExceeded
from app.domain.token_bucket import Bucket, Draw, Rate, draw

logger = logging.getLogger(__name__)

REMEMBERED = 10_000  # buckets of this process; the one that was unused for longest is forgotten
AWAY_SECONDS = 1.0  # so long nobody asks a Redis that did not answer
ANSWER_SECONDS = 0.2
SHORTEST_WAIT_SECONDS = 0.001
PORTION_SECONDS = 1.0  # after that an unused portion is lost: it may be wanted in another process
# The same rule as `app.domain.token_bucket.draw`, on the server's clock. Numbers are kept as texts of full precision.
_DRAW = """
local rate, burst, wanted = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local time = redis.call('TIME')
local now = time[1] + time[2] / 1000000
local kept = redis.call('HMGET', KEYS[1], 'tokens', 'at')
local tokens = burst
if kept[1] then tokens = math.min(burst, kept[1] + math.max(0, now - kept[2]) * rate) end
local granted = math.min(wanted, math.floor(tokens))
redis.call('HSET', KEYS[1], 'tokens', string.format('%.6f', tokens - granted), 'at', string.format('%.6f', now))
redis.call('PEXPIRE', KEYS[1], math.ceil(burst / rate * 1000) + 1000)
local wait = 0
if granted < 1 then wait = math.ceil((1 - tokens) / rate * 1000) end
return {granted, wait}
"""


class Buckets(Protocol):
    def draw(self, name: str, rate: Rate, wanted: int) -> Draw: ...


class LocalBuckets:
    """Of this process alone."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._buckets: OrderedDict[str, Bucket] = OrderedDict()

    def draw(self, name: str, rate: Rate, wanted: int) -> Draw:
        with self._lock:
            bucket, drawn = draw(self._buckets.pop(name, None), rate, now=self._clock(), wanted=wanted)
            self._buckets[name] = bucket
            if len(self._buckets) > REMEMBERED:
                self._buckets.popitem(last=False)
        return drawn


class SharedBuckets:
    """In Redis; while that is away or slow, those of this process."""

    def __init__(self, url: str, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._local = LocalBuckets(clock)
        client = redis.Redis.from_url(
            url, socket_timeout=ANSWER_SECONDS, socket_connect_timeout=ANSWER_SECONDS, retry=None
        )
        self._script: Any = client.register_script(_DRAW)
        weakref.finalize(self, client.close)  # an application has no end of its own at which it could close
        self._is_away, self._ask_at = False, 0.0

    def draw(self, name: str, rate: Rate, wanted: int) -> Draw:
        now = self._clock()
        if self._is_away:
            if now < self._ask_at:
                return self._local.draw(name, rate, wanted)
            self._ask_at = now + AWAY_SECONDS  # this request tries, the others do not wait for it
        try:
            granted, wait = self._script(keys=[f"trainyard:rate:{name}"], args=[rate.per_second, rate.burst, wanted])
        except (redis.RedisError, OSError) as error:
            if not self._is_away:
                logger.warning(
                    "Redis does not count requests (%s): each API process counts its own", type(error).__name__
                )
            self._is_away, self._ask_at = True, self._clock() + AWAY_SECONDS
            return self._local.draw(name, rate, wanted)
        self._is_away = False
        return Draw(int(granted), int(wait) / 1000)


@dataclass(frozen=True)
class _Portion:
    """Tokens that were fetched and not used yet, or the time before which fetching any is in vain."""

    left: int
    until: float
    wait_until: float = 0.0


class RateLimit:
    """Refuses whoever asks too often. Most requests use a token that was fetched with others, and ask nobody."""

    def __init__(self, rate: Rate, buckets: Buckets, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._rate, self._buckets, self._clock = rate, buckets, clock
        self._lock = threading.Lock()
        self._portions: OrderedDict[str, _Portion] = OrderedDict()

    def check(self, name: str, *, message: str) -> None:
        """Raises LimitExceeded, which says when to come again."""
        if self._rate.is_limited and (wait := self._wait(name)) > 0:
            raise LimitExceeded(message, retry_after_seconds=max(1, math.ceil(wait)))

    def _wait(self, name: str) -> float:
        now = self._clock()
        with self._lock:
            portion = self._portions.get(name)
            if portion is not None and now < portion.wait_until:
                return portion.wait_until - now
            if portion is not None and portion.left > 0 and now < portion.until:
                self._portions[name] = _Portion(portion.left - 1, portion.until)
                return 0.0
        drawn = self._buckets.draw(name, self._rate, self._rate.portion)
        with self._lock:
            # Somebody may have fetched at the same moment: theirs is not lost.
            known = self._portions.pop(name, None)
            left = drawn.granted + (known.left if known is not None and now < known.until else 0)
            self._portions[name] = (
                _Portion(left - 1, now + PORTION_SECONDS) if left else _Portion(0, now, now + drawn.wait_seconds)
            )
            if len(self._portions) > REMEMBERED:
                self._portions.popitem(last=False)
        return 0.0 if left else max(drawn.wait_seconds, SHORTEST_WAIT_SECONDS)


@dataclass(frozen=True, kw_only=True)
class RateLimits:
    requests_of_key: RateLimit
    wrong_keys_of_address: RateLimit
