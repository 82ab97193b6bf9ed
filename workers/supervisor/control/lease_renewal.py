"""The thread that keeps the lease: renews it, re-arms the fence after each confirmed renewal, and brings the wishes."""

import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Protocol

from app.database.transient_errors import passes
from app.domain.errors import LeaseLost, StaleJob
from app.services.attempts.leases import Wishes
from config.settings import LeaseSettings
from workers.supervisor.control.fence import boot_seconds

log = logging.getLogger(__name__)

# After a failed renewal: soon, for every second counts against the fence.
RETRY_SECONDS = 0.5
# A renewal that hangs must not keep a supervisor that is done.
STOP_SECONDS = 5.0


class Timer(Protocol):
    """The fence, as far as this thread uses it."""

    def arm(self, sent_at: float, seconds: float) -> None: ...
    def disarm(self) -> None: ...


class Renewal:
    """Renews every ``renew_seconds`` until stopped or lost; ``nudge`` makes it look at the wishes now."""

    def __init__(
        self,
        settings: LeaseSettings,
        fence: Timer,
        renew: Callable[[], Wishes],
        *,
        on_requests: Callable[[Wishes], None],
        on_lost: Callable[[str], None],
    ) -> None:
        self._settings = settings
        self._fence = fence
        self._renew = renew
        self._on_requests = on_requests
        self._on_lost = on_lost
        self._due = threading.Event()
        self._errands: deque[Callable[[], None]] = deque()
        self._stopped = False
        self._fenced = True
        self._fencing = threading.Lock()  # a renewal confirmed just now must not arm what was just disarmed
        self._thread = threading.Thread(target=self._keep, name="renewal", daemon=True)

    def start(self) -> None:
        """Take the first renewal at once, so that nothing ever runs unfenced. Raises LeaseLost."""
        deadline = time.monotonic() + self._settings.fence_seconds
        while not self._try(first=True):
            if time.monotonic() > deadline:
                raise LeaseLost("the lease could not be renewed before anything was started")
            time.sleep(RETRY_SECONDS)
        self._thread.start()

    def nudge(self) -> None:
        """Renew and read the wishes now; safe from a signal handler's deferred call and from any thread."""
        self._due.set()

    def before_the_next(self, errand: Callable[[], None]) -> None:
        """Have something written before the wishes are read again, and read them now; again until it works."""
        self._errands.append(errand)
        self._due.set()

    def unfence(self) -> None:
        """From now on a missed renewal kills nobody: no process of the attempt can train, nothing is being written."""
        with self._fencing:
            self._fenced = False
            self._fence.disarm()

    def stop(self, timeout_seconds: float = STOP_SECONDS) -> None:
        """Renew no more; returns when no renewal is under way, or after a while with one that hangs."""
        self._stopped = True
        self._due.set()
        if self._thread.is_alive():
            self._thread.join(timeout_seconds)
            if self._thread.is_alive():
                log.warning("a renewal still waits for the database; ending without its answer")
        self.unfence()

    def _keep(self) -> None:
        wait = self._settings.renew_seconds
        while True:
            self._due.wait(wait)
            self._due.clear()
            if self._stopped:
                return
            try:
                self._run_errands()
                wait = self._settings.renew_seconds if self._try() else RETRY_SECONDS
            except LeaseLost as error:
                if not self._stopped:
                    self._on_lost(str(error))
                return

    def _run_errands(self) -> None:
        """Raises LeaseLost."""
        while self._errands:
            try:
                self._errands[0]()
            except LeaseLost:
                raise
            except Exception as error:
                log.warning("what a renewal waits for could not be written", exc_info=True)
                if passes(error) or isinstance(error, StaleJob):
                    return
            self._errands.popleft()

    def _try(self, *, first: bool = False) -> bool:
        """Whether a renewal was confirmed. Raises LeaseLost."""
        sent_at = boot_seconds()
        try:
            wishes = self._renew()
        except LeaseLost:
            raise
        except Exception:
            # Whatever is wrong with the database, going on is right until the fence fires.
            log.warning("the lease could not be renewed%s", " yet" if first else "", exc_info=True)
            return False
        with self._fencing:
            if self._fenced:
                self._fence.arm(sent_at, self._settings.fence_seconds)
        self._on_requests(wishes)
        return True
