"""Bounds what the log of a rank may fill of the storage; how fast it is written is bounded by the storage itself."""

import time
from collections.abc import Callable

# A rank may write so much at any speed, and on average so much per second: far more than a training has to say, and
# less than an endless loop would fill a disk with. The rest is dropped: a training is not to wait for its log for days.
BURST_BYTES = 1 << 30
BYTES_PER_SECOND = 4 << 20
# After lines were dropped, so much must be free first: one notice per pause, not one per line.
PAUSE_BYTES = 4 << 20


class FloodGate:
    """A token bucket of bytes: decides whether lines may pass, and counts those that may not."""

    def __init__(self, clock: Callable[[], float] = time.monotonic, *, burst_bytes: int = BURST_BYTES) -> None:
        self._clock = clock
        self._burst_bytes = burst_bytes
        self._bytes = float(burst_bytes)
        self._at = clock()
        self._dropped = 0

    def admit_all(self, size: int) -> bool:
        """Whether lines of this size in all may pass; if not, ask for each."""
        now = self._clock()
        self._bytes = min(self._burst_bytes, self._bytes + (now - self._at) * BYTES_PER_SECOND)
        self._at = now
        if self._bytes < size + (PAUSE_BYTES if self._dropped else 0):
            return False
        self._bytes -= size
        return True

    def admit(self, size: int) -> bool:
        """Whether a line may pass; otherwise it is counted."""
        passes = self.admit_all(size)
        self._dropped += not passes
        return passes

    def take_dropped(self) -> int:
        """How many lines were held back since the last one that passed."""
        dropped, self._dropped = self._dropped, 0
        return dropped
