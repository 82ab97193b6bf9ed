"""How many streams may be open in this process, fewer than it has threads so that they can't starve requests; and how
they are paced.
"""

import threading
from dataclasses import dataclass

from app.domain.errors import LimitExceeded

RETRY_AFTER_SECONDS = 5


@dataclass(frozen=True, kw_only=True)
class StreamPace:
    """How often a stream looks for news, says that it lives, and asks whether its key is still good."""

    poll_seconds: float = 0.3
    heartbeat_seconds: float = 15.0
    recheck_seconds: float = 0.5  # a stream ends within a second of its key's revocation


class StreamSlots:
    def __init__(self, limit: int) -> None:
        self._free = threading.BoundedSemaphore(limit)
        self._limit = limit

    def take(self) -> None:
        """Raises LimitExceeded when all are taken; whoever took one gives it back."""
        if not self._free.acquire(blocking=False):
            raise LimitExceeded(
                f"all {self._limit} streams of this server are in use; try again, or read without following",
                retry_after_seconds=RETRY_AFTER_SECONDS,
            )

    def give_back(self) -> None:
        self._free.release()
