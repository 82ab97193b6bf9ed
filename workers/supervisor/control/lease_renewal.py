"""The thread that renews the lease, re-arms the fence after each renewal, and delivers control requests."""

import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Protocol

from app.database.transient_errors import is_transient
from app.domain.errors import LeaseLost, StaleJob
from app.services.attempts.leases import ControlRequests
from config.settings import LeaseSettings
from workers.supervisor.control.lease_fence import boot_seconds

log = logging.getLogger(__name__)

# After a failed renewal: soon, because the fence's time is running.
RETRY_SECONDS = 0.5
# A renewal that hangs must not delay the end of a supervisor.
STOP_SECONDS = 5.0


class Timer(Protocol):
    """The part of the fence that this thread uses."""

    def arm(self, sent_at: float, seconds: float) -> None: ...
    def disarm(self) -> None: ...
    def close(self) -> None: ...


class LeaseRenewal:
    """Renews every ``renew_seconds`` until stopped or lost; ``nudge`` renews and reads the requests now."""

    def __init__(
        self,
        settings: LeaseSettings,
        fence: Timer,
        renew: Callable[[], ControlRequests],
        *,
        on_requests: Callable[[ControlRequests], None],
        on_lost: Callable[[str], None],
    ) -> None:
        self._settings = settings
        self._fence = fence
        self._renew = renew
        self._on_requests = on_requests
        self._on_lost = on_lost
        self._due = threading.Event()
        self._actions: deque[Callable[[], None]] = deque()
        self._stopped = False
        self._fenced = True
        self._fencing = threading.Lock()  # a renewal confirmed just now must not re-arm a fence that was just disarmed
        self._thread = threading.Thread(target=self._keep, name="renewal", daemon=True)

    def start(self) -> None:
        """Renew for the first time before anything runs, so that it is fenced. Raises LeaseLost."""
        deadline = time.monotonic() + self._settings.fence_seconds
        while not self._try(first=True):
            if time.monotonic() > deadline:
                raise LeaseLost("the lease could not be renewed before anything was started")
            time.sleep(RETRY_SECONDS)
        self._thread.start()

    def nudge(self) -> None:
        """Renew and read the requests now; safe from a signal handler's deferred call and from any thread."""
        self._due.set()

    def run_before_next(self, action: Callable[[], None]) -> None:
        """Run ``action`` before the requests are read again, and read them now; retried on transient errors."""
        self._actions.append(action)
        self._due.set()

    def unfence(self) -> None:
        """From now on a missed renewal kills no process: none of the attempt can train or write any more."""
        with self._fencing:
            self._fenced = False
            self._fence.disarm()

    def stop(self, timeout_seconds: float = STOP_SECONDS) -> None:
        """Stop renewing; returns when no renewal is in progress, or after ``timeout_seconds``."""
        self._stopped = True
        self._due.set()
        if self._thread.is_alive():
            self._thread.join(timeout_seconds)
            if self._thread.is_alive():
                log.warning("a renewal is still waiting for the database; not waiting for its answer")
        with self._fencing:
            self._fenced = False
            self._fence.close()

    def _keep(self) -> None:
        wait = self._settings.renew_seconds
        while True:
            self._due.wait(wait)
            self._due.clear()
            if self._stopped:
                return
            try:
                self._run_actions()
                wait = self._settings.renew_seconds if self._try() else RETRY_SECONDS
            except LeaseLost as error:
                if not self._stopped:
                    self._on_lost(str(error))
                return

    def _run_actions(self) -> None:
        """Raises LeaseLost."""
        while self._actions:
            try:
                self._actions[0]()
            except LeaseLost:
                raise
            except Exception as error:
                log.warning("an action due before the next renewal failed", exc_info=True)
                if is_transient(error) or isinstance(error, StaleJob):
                    return
            self._actions.popleft()

    def _try(self, *, first: bool = False) -> bool:
        """Whether a renewal was confirmed. Raises LeaseLost."""
        sent_at = boot_seconds()
        try:
            requests = self._renew()
        except LeaseLost:
            raise
        except Exception:
            # Whatever the error: until the fence fires, continuing is right.
            log.warning("the lease could not be renewed%s", " yet" if first else "", exc_info=True)
            return False
        with self._fencing:
            if self._fenced:
                self._fence.arm(sent_at, self._settings.fence_seconds)
        self._on_requests(requests)
        return True
