"""Who asked again and again lately: the readers that have no stream."""

import threading
import time
from collections.abc import Callable

SECONDS = 60.0
MOST = 10_000


class RecentPolls:
    """Counts those who polled within the last minute, at most ``MOST``; one per process. Thread-safe."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._last: dict[str, float] = {}  # in the order of their polls

    def note(self, who: str) -> None:
        with self._lock:
            self._last.pop(who, None)
            if len(self._last) < MOST:
                self._last[who] = self._clock()
            self._forget()

    def count(self) -> int:
        with self._lock:
            self._forget()
            return len(self._last)

    def _forget(self) -> None:
        oldest = self._clock() - SECONDS
        while self._last and self._last[first := next(iter(self._last))] < oldest:
            del self._last[first]
