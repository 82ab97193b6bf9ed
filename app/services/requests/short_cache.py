"""Answers that many readers share for a moment, so that their number does not multiply the queries."""

import threading
import time
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from typing import Any, TypeVar, cast

T = TypeVar("T")
K = TypeVar("K", bound=Hashable)

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

    def get_all(
        self, keys: Iterable[K], seconds: float, compute: Callable[[Sequence[K]], Mapping[K, T]]
    ) -> dict[K, T | None]:
        """As ``get`` for each key, but those that are missing or too old are computed at once; None: it has no value.

        A reader takes its entries in the order of their texts, so that readers never wait for each other in turn.
        """
        ordered = sorted(set(keys), key=repr)
        with ExitStack() as held:
            entries = {key: self._entry(key) for key in ordered}
            for entry in entries.values():
                held.enter_context(entry.lock)
            old = [key for key, entry in entries.items() if self._clock() - entry.at >= seconds]
            found = compute(old) if old else {}
            for key in old:
                entries[key].value, entries[key].at = found.get(key), self._clock()
            return {key: entry.value for key, entry in entries.items()}

    def _entry(self, key: Hashable) -> _Entry:
        with self._lock:
            if len(self._entries) >= MOST and key not in self._entries:
                too_old = self._clock() - OLD_SECONDS
                self._entries = {k: each for k, each in self._entries.items() if each.at > too_old}
                if len(self._entries) >= MOST:
                    self._entries.clear()
            return self._entries.setdefault(key, _Entry())
