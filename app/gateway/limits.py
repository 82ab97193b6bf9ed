"""Requests and tokens a minute of each key: buckets of this process that refill steadily, and headers about them."""

import math
import time
from collections import OrderedDict
from collections.abc import Callable

from app.domain.errors import LimitExceeded

MAX_KEYS = 10_000  # the least recently used one is dropped


class MinuteBuckets:
    """A bucket for each name, full at first, that refills within a minute. It may be overdrawn: what an answer takes
    is known when it is complete.
    """

    def __init__(self, per_minute: int, clock: Callable[[], float] = time.monotonic) -> None:
        self.per_minute = per_minute
        self._clock = clock
        self._levels: OrderedDict[str, tuple[float, float]] = OrderedDict()  # level, and when it was that

    def level(self, name: str) -> float:
        now = self._clock()
        level, at = self._levels.get(name, (float(self.per_minute), now))
        return min(float(self.per_minute), level + (now - at) * self.per_minute / 60)

    def take(self, name: str, amount: float) -> None:
        self._levels[name] = (self.level(name) - amount, self._clock())
        self._levels.move_to_end(name)
        if len(self._levels) > MAX_KEYS:
            self._levels.popitem(last=False)

    def seconds_until(self, name: str, level: float) -> float:
        return max(0.0, (level - self.level(name)) * 60 / self.per_minute)


class KeyLimits:
    """What keys may ask of models. A limit of 0 is none."""

    def __init__(
        self, *, requests_per_minute: int, tokens_per_minute: int, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._requests = MinuteBuckets(requests_per_minute, clock)
        self._tokens = MinuteBuckets(tokens_per_minute, clock)

    def admit(self, key_id: str) -> None:
        """Count a request. Raises LimitExceeded with the time to wait."""
        for what, buckets in (("requests", self._requests), ("tokens", self._tokens)):
            if buckets.per_minute and (wait := buckets.seconds_until(key_id, 1.0)) > 0:
                raise LimitExceeded(
                    f"this key may use {buckets.per_minute} {what} a minute; retry in {math.ceil(wait)} s",
                    retry_after_seconds=math.ceil(wait),
                )
        if self._requests.per_minute:
            self._requests.take(key_id, 1)

    def charge(self, key_id: str, tokens: int) -> None:
        """Count the tokens of an answered request."""
        if self._tokens.per_minute:
            self._tokens.take(key_id, tokens)

    def headers(self, key_id: str) -> dict[str, str]:
        """OpenAI's headers about the limits there are."""
        found = {}
        for what, buckets in (("Requests", self._requests), ("Tokens", self._tokens)):
            if buckets.per_minute:
                found[f"X-Ratelimit-Limit-{what}"] = str(buckets.per_minute)
                found[f"X-Ratelimit-Remaining-{what}"] = str(max(0, int(buckets.level(key_id))))
                full_in = buckets.seconds_until(key_id, buckets.per_minute)
                found[f"X-Ratelimit-Reset-{what}"] = f"{full_in:.3f}".rstrip("0").rstrip(".") + "s"
        return found
