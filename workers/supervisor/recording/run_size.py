"""Watches how much a directory holds: an attempt's run directory, where its processes write files, or a claim."""

import threading
import time
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path

from workers.run_dir.sizes import allocated_bytes

PERIOD_SECONDS = 2.0
SHARE = 0.05  # of the time at most, for walking through directories of very many files
# Of its mounts one is walked through at a time: each walk holds up to 65 descriptors, and the supervisor needs others.
_WALKING_MOUNTS = threading.Lock()


class RunSizeWatch:
    """Measures on a thread of its own; ``on_exceeded`` is called once, on that thread, with the least megabytes held.

    ``besides`` is a directory in it that doesn't count. ``share`` of the time is the most that it takes.
    """

    def __init__(
        self,
        directory: Path,
        limit_mb: int,
        on_exceeded: Callable[[int], None],
        *,
        besides: str = "",
        share: float = SHARE,
    ) -> None:
        self._directory = directory
        self._limit_mb = limit_mb
        self._on_exceeded = on_exceeded
        self._besides, self._share = besides, share
        self._turn = _WALKING_MOUNTS if share < SHARE else nullcontext()
        self._stopped = threading.Event()

    def start(self) -> None:
        threading.Thread(target=self._watch, name="run size", daemon=True).start()

    def stop(self) -> None:
        self._stopped.set()

    def _watch(self) -> None:
        pause, most_bytes = PERIOD_SECONDS, ((self._limit_mb + 1) << 20) - 1
        while not self._stopped.wait(pause):
            with self._turn:
                began = time.monotonic()
                found = allocated_bytes(self._directory, besides=self._besides, most_bytes=most_bytes)
                took = time.monotonic() - began
            if found > most_bytes:
                self._on_exceeded(found >> 20)
                return
            pause = max(PERIOD_SECONDS, took / self._share)
