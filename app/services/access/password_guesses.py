"""Counts wrong passwords by address. Passwords may be chosen by people, unlike API keys, which can't be guessed."""

import math
import time
from collections.abc import Callable

from app.domain.spec.locations.hosts import holder_of
from app.domain.token_bucket import Rate
from app.security.rate_limits import MAX_BUCKETS, LocalBuckets

GUESSES = Rate(per_second=0.2, burst=20)  # of one address


class Guesses:
    """Counts wrong passwords per address. One with too many is refused for a while, also with the right one: otherwise
    guessing could continue.
    """

    def __init__(self, rate: Rate = GUESSES, clock: Callable[[], float] = time.monotonic) -> None:
        self._rate, self._clock = rate, clock
        self._buckets = LocalBuckets(clock)
        self._blocked: dict[str, float] = {}  # address → until when

    def seconds_left(self, address: str) -> int:
        """For how long the address is refused; 0 if it is not."""
        address = holder_of(address)
        left = self._blocked.get(address, 0.0) - self._clock()
        if left <= 0:
            self._blocked.pop(address, None)
            return 0
        return math.ceil(left)

    def note_wrong(self, address: str) -> None:
        address = holder_of(address)
        drawn = self._buckets.draw(address, self._rate, 1)
        if not drawn.granted:
            if len(self._blocked) >= MAX_BUCKETS:
                self._blocked.clear()
            self._blocked[address] = self._clock() + drawn.wait_seconds
