"""A thread of the node worker that repeats one task, survives its failures, and can be woken early."""

import logging
import threading
from collections.abc import Callable

log = logging.getLogger(__name__)

STOP_SECONDS = 5.0
# Log the first failure with a traceback; a database that is down for hours must not log one per second.
QUIET_FAILURES = 60


class PeriodicThread:
    """Calls ``work`` every ``every_seconds`` until stopped; logs failures and retries."""

    def __init__(self, name: str, work: Callable[[], None], every_seconds: float) -> None:
        self._name = name
        self._work = work
        self._every_seconds = every_seconds
        self._due = threading.Event()
        self._stopping = False
        self._failures = 0
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def wake(self) -> None:
        """Run the work soon; safe from any thread."""
        self._due.set()

    def stop(self) -> None:
        """Finish the current run, then end."""
        self._stopping = True
        self._due.set()
        if self._thread.is_alive():
            self._thread.join(STOP_SECONDS)

    def _run(self) -> None:
        while not self._stopping:
            self._due.clear()
            try:
                self._work()
            except Exception:
                if self._failures % QUIET_FAILURES == 0:
                    log.exception("%s failed and will be retried", self._name)
                self._failures += 1
            else:
                self._failures = 0
            self._due.wait(self._every_seconds)
