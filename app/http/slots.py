"""Limits how many threads of a process wait for clients, by streams and by bodies, so that they starve no request."""

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from app.domain.errors import LimitExceeded

RETRY_AFTER_SECONDS = 5


@dataclass(frozen=True, kw_only=True)
class StreamPace:
    """Intervals of a stream's polling, heartbeats, and revalidation of its key."""

    poll_seconds: float = 0.3
    heartbeat_seconds: float = 15.0
    recheck_seconds: float = 0.5  # a stream ends within a second of its key's revocation


class Slots:
    """Threads of this process that may wait for clients at a time: ``limit`` in all, and ``own_limit`` of one project.

    ``what`` names what they are used for, and ``otherwise`` what a client can do without one.
    """

    def __init__(self, limit: int, own_limit: int, *, what: str, otherwise: str) -> None:
        self._limit, self._own_limit = limit, own_limit
        self._what, self._otherwise = what, otherwise
        self._lock = threading.Lock()
        self._taken: Counter[str] = Counter()

    def take(self, holder: str) -> None:
        """Take a slot for a project; the caller must give it back. Raises LimitExceeded when all are in use."""
        with self._lock:
            own, every = self._taken[holder], self._taken.total()
            if own >= self._own_limit or every >= self._limit:
                whose = "that one project may have on" if own >= self._own_limit else "of"
                number = self._own_limit if own >= self._own_limit else self._limit
                raise LimitExceeded(
                    f"all {number} {self._what} {whose} this server are in use; {self._otherwise}",
                    retry_after_seconds=RETRY_AFTER_SECONDS,
                )
            self._taken[holder] += 1

    @property
    def in_use(self) -> int:
        with self._lock:
            return self._taken.total()

    def give_back(self, holder: str) -> None:
        with self._lock:
            self._taken[holder] -= 1
            if not self._taken[holder]:
                del self._taken[holder]

    @contextmanager
    def held(self, holder: str) -> Iterator[None]:
        """Raises LimitExceeded when all are in use."""
        self.take(holder)
        try:
            yield
        finally:
            self.give_back(holder)
