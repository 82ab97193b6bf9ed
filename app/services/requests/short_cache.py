"""Answers that many readers share for a moment, so that their number does not multiply the queries."""

import threading
import time
from collections.abc import Callable, Hashable
from typing import Any, TypeVar, cast

T = TypeVar("T")

MOST = 10_000
OLD_SECONDS = 120.0


class _Entry:
    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.at = float("-inf")
        self.value: Any = None


class ShortCache:
    """One per process. Of readers that come at once, one computes and the others wait for it."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._entries: dict[Hashable, _Entry] = {}

    def get(self, key: Hashable, seconds: float, compute: Callable[[], T]) -> T:
        """The value of the key, computed anew when it is older than ``seconds``; errors are not kept."""
        entry = self._entry(key)
        with entry.lock:
            if self._clock() - entry.at >= seconds:
                entry.value, entry.at = compute(), self._clock()
            return cast("T", entry.value)

    def _entry(self, key: Hashable) -> _Entry:
        with self._lock:
            if len(self._entries) >= MOST and key not in self._entries:
                too_old = self._clock() - OLD_SECONDS
                self._entries = {k: each for k, each in self._entries.items() if each.at > too_old}
                if len(self._entries) >= MOST:
                    self._entries.clear()
            return self._entries.setdefault(key, _Entry())
