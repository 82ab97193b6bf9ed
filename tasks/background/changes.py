"""When the coordinator's loops ask the database: after a change, when something is due, and now and then anyway."""

import threading
import time
from collections.abc import Callable

from app.database.change_counter import ChangeCounter
from app.database.engine import Database
from tasks.background.loop import Loop

# Finds what no trigger has counted, and what only time changes.
FULL_POLL_SECONDS = 30.0


class Poll:
    """Whether a loop has to ask its questions now. A poll that failed, or was begun and not ended, stays due.

    ``expect`` is safe from any thread; the rest is for the loop's own.
    """

    def __init__(self, full_seconds: float = FULL_POLL_SECONDS, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._full_seconds = full_seconds
        self._clock = clock
        self._news = threading.Event()
        self._owes = True
        self._due_at = 0.0

    def expect(self) -> None:
        """Something may have changed."""
        self._news.set()

    def begin(self) -> bool:
        """Whether to ask now. News that arrives while the loop asks counts for its next poll."""
        if self._news.is_set():
            self._news.clear()
            self._owes = True
        self._owes = self._owes or self._clock() >= self._due_at
        return self._owes

    def end(self, again_in: float | None = None) -> None:
        """Everything was answered; ``again_in``: seconds until there is something to do without a change."""
        self._owes = False
        self._due_at = self._clock() + min(self._full_seconds if again_in is None else again_in, self._full_seconds)

    @property
    def rest_seconds(self) -> float:
        """How long its loop may sleep unless it is woken."""
        return max(0.0, self._due_at - self._clock())


class Changes:
    """Reads the change counter for all loops, and passes its changes on to them."""

    def __init__(self, db: Database, every_seconds: float, pass_on: Callable[[], None]) -> None:
        self._counter = ChangeCounter(db)
        self._pass_on = pass_on
        self._loop = Loop("changes", self._read, every_seconds)

    def start(self) -> None:
        self._loop.start()

    def stop(self) -> None:
        self._loop.stop()

    def join(self) -> None:
        self._loop.join()

    def _read(self) -> None:
        if self._counter.has_changed():
            self._pass_on()
