"""Watches how much the processes of an attempt keep in its run directory, where they write all their files."""

import threading
import time
from collections.abc import Callable
from pathlib import Path

from workers.run_dir.sizes import allocated_bytes

PERIOD_SECONDS = 2.0
SHARE = 0.05  # of the time at most, for walking through directories of very many files


class RunSizeWatch:
    """Measures on a thread of its own; ``on_exceeded`` is called once, on that thread, with the megabytes found."""

    def __init__(self, directory: Path, limit_mb: int, on_exceeded: Callable[[int], None]) -> None:
        self._directory = directory
        self._limit_mb = limit_mb
        self._on_exceeded = on_exceeded
        self._stopped = threading.Event()

    def start(self) -> None:
        threading.Thread(target=self._watch, name="run size", daemon=True).start()

    def stop(self) -> None:
        self._stopped.set()

    def _watch(self) -> None:
        pause = PERIOD_SECONDS
        while not self._stopped.wait(pause):
            began = time.monotonic()
            found = allocated_bytes(self._directory) >> 20
            if found > self._limit_mb:
                self._on_exceeded(found)
                return
            pause = max(PERIOD_SECONDS, (time.monotonic() - began) / SHARE)
