"""Threads that repeat one task, survive its failures, and can be woken early."""

import logging
import threading
import time
from collections.abc import Callable

FIRST_BACKOFF_SECONDS = 0.1
MAX_BACKOFF_SECONDS = 2.0
# At a start under `trainyard up` the tables may be created a moment later: not worth a traceback.
LOG_AFTER_SECONDS = 3.0
LOG_AGAIN_SECONDS = 60.0
STOP_SECONDS = 5.0

logger = logging.getLogger(__name__)


class Loop:
    """Calls ``work`` at least every ``every_seconds``, or after the seconds that it returns; a failure is logged and
    followed by a backoff, and never ends the loop.
    """

    def __init__(self, name: str, work: Callable[[], float | None], every_seconds: float) -> None:
        self._name = name
        self._work = work
        self._every_seconds = every_seconds
        self._rest_seconds = every_seconds
        self._woken = threading.Event()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._failing_since: float | None = None
        self._complained_at: float | None = None

    def start(self) -> None:
        self._thread.start()

    def wake(self) -> None:
        """Run the work soon; safe from any thread."""
        self._woken.set()

    def stop(self) -> None:
        """Request the end of the loop; the current run is finished."""
        self._stopping.set()
        self._woken.set()

    def join(self) -> None:
        if self._thread.is_alive():
            self._thread.join(STOP_SECONDS)

    def _run(self) -> None:
        rest = FIRST_BACKOFF_SECONDS
        while not self._stopping.is_set():
            self._woken.clear()
            if self._succeeds():
                rest = FIRST_BACKOFF_SECONDS
                self._woken.wait(self._rest_seconds)
            else:
                self._stopping.wait(rest)
                rest = min(rest * 2, MAX_BACKOFF_SECONDS)

    def _succeeds(self) -> bool:
        try:
            rest = self._work()
        except Exception as error:  # noqa: BLE001  the outermost frame of a thread that must not end
            self._complain(error, time.monotonic())
            return False
        self._rest_seconds = self._every_seconds if rest is None else rest
        if self._complained_at is not None:
            logger.info("%s recovered", self._name)
        self._failing_since = self._complained_at = None
        return True

    def _complain(self, error: Exception, now: float) -> None:
        if self._failing_since is None:
            self._failing_since = now
            logger.info("%s failed and will be retried: %s: %s", self._name, type(error).__name__, error)
        elif now - self._failing_since < LOG_AFTER_SECONDS:
            return
        elif self._complained_at is None or now - self._complained_at >= LOG_AGAIN_SECONDS:
            logger.error("%s keeps failing and will be retried", self._name, exc_info=error)
            self._complained_at = now
