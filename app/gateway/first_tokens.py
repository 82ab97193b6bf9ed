"""How long clients have waited for the first token of recent streams, by service."""

import time
from collections import deque
from collections.abc import Callable

from app.domain.serving.first_tokens import CLASSES, WINDOW_SECONDS, class_of

MOST_KEPT = 2000  # of a service; beyond that the newest


class FirstTokens:
    """Of the last five minutes, counted in classes."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._recent: dict[str, deque[tuple[float, int]]] = {}  # when, and its class

    def note(self, service_id: str, seconds: float) -> None:
        recent = self._recent.setdefault(service_id, deque(maxlen=MOST_KEPT))
        recent.append((self._clock(), class_of(seconds)))

    def counts(self, service_id: str) -> tuple[int, ...]:
        """By class; empty without recent streams."""
        recent = self._recent.get(service_id)
        if recent is None:
            return ()
        while recent and recent[0][0] <= self._clock() - WINDOW_SECONDS:
            recent.popleft()
        if not recent:
            del self._recent[service_id]
            return ()
        found = [0] * CLASSES
        for _, number in recent:
            found[number] += 1
        return tuple(found)
