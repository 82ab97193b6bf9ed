"""Limits how often a hostile rank can cause something: a burst, then a steady rate."""

import time
from collections.abc import Callable


class TokenBucket:
    """A token bucket that starts full; one token returns every ``every_seconds``."""

    def __init__(self, burst: int, every_seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._burst = burst
        self._every_seconds = every_seconds
        self._clock = clock
        self._left = float(burst)
        self._looked_at = clock()

    def take(self) -> bool:
        """Take a token; False when there is none."""
        self._refill()
        if self._left < 1:
            return False
        self._left -= 1
        return True

    def seconds_to_next(self) -> float:
        """Seconds until ``take`` succeeds."""
        self._refill()
        return max(0.0, (1 - self._left) * self._every_seconds)

    def _refill(self) -> None:
        now = self._clock()
        self._left = min(float(self._burst), self._left + (now - self._looked_at) / self._every_seconds)
        self._looked_at = now
