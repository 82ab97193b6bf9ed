"""Requests and tokens a minute of each key: buckets that refill steadily, and headers about them."""

import math
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from app.domain.errors import LimitExceeded
from app.security.permissions import Caller
from app.security.shared_levels import Withdrawal

MAX_KEYS = 10_000  # the least recently used one is dropped


@dataclass
class _Bucket:
    """``taken``: since other gateways were last notified; ``owed``: before, when they could not be notified.

    ``is_used``: its key has asked since they were notified.
    """

    per_minute: int
    level: float
    at: float
    taken: float = 0.0
    owed: float = 0.0
    is_used: bool = True


class MinuteBuckets:
    """A bucket for each name, full at first, that refills within a minute. It may be overdrawn: what an answer takes
    is known when it is complete.

    Gateways tell each other what they have taken: `unshared`, then `shared` with the levels that follow from it.
    """

    def __init__(self, kind: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._kind = kind
        self._clock = clock
        self._buckets: OrderedDict[str, _Bucket] = OrderedDict()

    def level(self, name: str, per_minute: int) -> float:
        bucket = self._buckets.get(name)
        return float(per_minute) if bucket is None else self._filled(bucket, per_minute)

    def take(self, name: str, per_minute: int, amount: float) -> None:
        bucket = self._buckets.pop(name, None) or _Bucket(per_minute, float(per_minute), self._clock())
        bucket.level = self._filled(bucket, per_minute) - amount
        bucket.per_minute, bucket.at = per_minute, self._clock()
        bucket.taken, bucket.is_used = bucket.taken + amount, True
        self._buckets[name] = bucket
        if len(self._buckets) > MAX_KEYS:
            self._buckets.popitem(last=False)

    def seconds_until(self, name: str, per_minute: int, level: float) -> float:
        return max(0.0, (level - self.level(name, per_minute)) * 60 / per_minute)

    def unshared(self) -> list[Withdrawal]:
        """What was taken since the last call, also nothing: others may have taken from a bucket that is in use here.

        One that is full and not in use is forgotten.
        """
        found = []
        for name, bucket in list(self._buckets.items()):
            missing = bucket.per_minute - self._filled(bucket, bucket.per_minute)
            if not bucket.is_used and not missing:
                del self._buckets[name]
                continue
            # The shared bucket refills, too: all of `taken` counts there, and of `owed` what has not refilled since.
            amount = bucket.taken + min(bucket.owed, max(0.0, missing - bucket.taken))
            found.append(Withdrawal(name=f"{self._kind}:{name}", per_minute=bucket.per_minute, amount=amount))
            bucket.taken, bucket.owed, bucket.is_used = 0.0, 0.0, False
        return found

    def shared(self, taken: Sequence[Withdrawal], levels: Sequence[float] | None) -> None:
        """The levels of what `unshared` gave; None: others could not be notified, and will be next time."""
        for number, each in enumerate(taken):
            bucket = self._buckets.get(each.name.removeprefix(f"{self._kind}:"))
            if bucket is None:
                continue
            if levels is None:
                bucket.owed += each.amount
            else:  # less what was taken meanwhile
                bucket.level, bucket.at = levels[number] - bucket.taken, self._clock()

    def _filled(self, bucket: _Bucket, per_minute: int) -> float:
        return min(float(per_minute), bucket.level + (self._clock() - bucket.at) * bucket.per_minute / 60)


class KeyLimits:
    """What keys may ask of models: their own limits, or else these. A limit of 0 is none."""

    def __init__(
        self, *, requests_per_minute: int, tokens_per_minute: int, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._defaults = (requests_per_minute, tokens_per_minute)
        self.requests = MinuteBuckets("requests", clock)
        self.tokens = MinuteBuckets("tokens", clock)

    def admit(self, caller: Caller) -> None:
        """Count a request. Raises LimitExceeded with the time to wait."""
        for what, buckets, most in self._of(caller):
            if (wait := buckets.seconds_until(caller.key_id, most, 1.0)) > 0:
                raise LimitExceeded(
                    f"this key may use {most} {what} a minute; retry in {math.ceil(wait)} s",
                    retry_after_seconds=math.ceil(wait),
                )
        for _, buckets, most in self._of(caller):
            buckets.take(caller.key_id, most, 1 if buckets is self.requests else 0)

    def charge(self, caller: Caller, tokens: int) -> None:
        """Count the tokens of an answered request."""
        if most := self._rates(caller)[1]:
            self.tokens.take(caller.key_id, most, tokens)

    def headers(self, caller: Caller) -> dict[str, str]:
        """OpenAI's headers about the limits there are."""
        found = {}
        for kind, buckets, most in self._of(caller):
            what = kind.title()
            found[f"X-Ratelimit-Limit-{what}"] = str(most)
            found[f"X-Ratelimit-Remaining-{what}"] = str(max(0, int(buckets.level(caller.key_id, most))))
            full_in = buckets.seconds_until(caller.key_id, most, most)
            found[f"X-Ratelimit-Reset-{what}"] = f"{full_in:.3f}".rstrip("0").rstrip(".") + "s"
        return found

    def _of(self, caller: Caller) -> list[tuple[str, MinuteBuckets, int]]:
        """The limits that there are: (of what, buckets, how many a minute)."""
        requests, tokens = self._rates(caller)
        found = (("requests", self.requests, requests), ("tokens", self.tokens, tokens))
        return [each for each in found if each[2]]

    def _rates(self, caller: Caller) -> tuple[int, int]:
        requests, tokens = self._defaults
        own = (caller.requests_per_minute, caller.tokens_per_minute)
        return requests if own[0] is None else own[0], tokens if own[1] is None else own[1]
