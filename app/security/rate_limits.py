"""Rate limits: a token bucket per key, shared by all API processes through Redis, or per process without Redis."""

import math
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from app.domain.errors import LimitExceeded
from app.domain.token_bucket import Bucket, Draw, Rate, draw

MAX_BUCKETS = 10_000  # of this process; the least recently used one is dropped
SHORTEST_WAIT_SECONDS = 0.001
BATCH_SECONDS = 1.0  # after that unused prefetched tokens are dropped: another process may need them


class Buckets(Protocol):
    def draw(self, name: str, rate: Rate, requested: int) -> Draw: ...


class LocalBuckets:
    """Token buckets of this process."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._buckets: OrderedDict[str, Bucket] = OrderedDict()

    def draw(self, name: str, rate: Rate, requested: int) -> Draw:
        with self._lock:
            bucket, drawn = draw(self._buckets.pop(name, None), rate, now=self._clock(), requested=requested)
            self._buckets[name] = bucket
            if len(self._buckets) > MAX_BUCKETS:
                self._buckets.popitem(last=False)
        return drawn


@dataclass(frozen=True)
class _Batch:
    """Prefetched unused tokens, or the time before which fetching is futile."""

    left: int
    until: float
    wait_until: float = 0.0


class RateLimit:
    """Limits the request rate per name. Tokens are fetched in batches, so most requests need no round trip."""

    def __init__(self, rate: Rate, buckets: Buckets, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._rate, self._buckets, self._clock = rate, buckets, clock
        self._lock = threading.Lock()
        self._portions: OrderedDict[str, _Batch] = OrderedDict()

    def check(self, name: str, *, message: str) -> None:
        """Raises LimitExceeded with the time to wait."""
        if self._rate.is_limited and (wait := self._wait(name)) > 0:
            raise LimitExceeded(message, retry_after_seconds=max(1, math.ceil(wait)))

    def _wait(self, name: str) -> float:
        now = self._clock()
        with self._lock:
            portion = self._portions.get(name)
            if portion is not None and now < portion.wait_until:
                return portion.wait_until - now
            if portion is not None and portion.left > 0 and now < portion.until:
                self._portions[name] = _Batch(portion.left - 1, portion.until)
                return 0.0
        drawn = self._buckets.draw(name, self._rate, self._rate.portion)
        with self._lock:
            # A concurrent request may have fetched a batch: add its tokens.
            known = self._portions.pop(name, None)
            left = drawn.granted + (known.left if known is not None and now < known.until else 0)
            self._portions[name] = (
                _Batch(left - 1, now + BATCH_SECONDS) if left else _Batch(0, now, now + drawn.wait_seconds)
            )
            if len(self._portions) > MAX_BUCKETS:
                self._portions.popitem(last=False)
        return 0.0 if left else max(drawn.wait_seconds, SHORTEST_WAIT_SECONDS)


@dataclass(frozen=True, kw_only=True)
class RateLimits:
    requests_of_key: RateLimit
    failed_logins_of_address: RateLimit
