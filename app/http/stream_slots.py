"""Limits open streams per process to fewer than its threads, so that they cannot starve requests, and their pace."""

import threading
from dataclasses import dataclass

from app.domain.errors import LimitExceeded

RETRY_AFTER_SECONDS = 5


@dataclass(frozen=True, kw_only=True)
class StreamPace:
    """Intervals of a stream's polling, heartbeats, and revalidation of its key."""

    poll_seconds: float = 0.3
    heartbeat_seconds: float = 15.0
    recheck_seconds: float = 0.5  # a stream ends within a second of its key's revocation


class StreamSlots:
    def __init__(self, limit: int) -> None:
        self._free = threading.BoundedSemaphore(limit)
        self._limit = limit

    def take(self) -> None:
        """Acquire a slot; the caller must release it. Raises LimitExceeded when all are in use."""
        if not self._free.acquire(blocking=False):
            raise LimitExceeded(
                f"all {self._limit} streams of this server are in use; retry later, or read without following",
                retry_after_seconds=RETRY_AFTER_SECONDS,
            )

    def give_back(self) -> None:
        self._free.release()
