"""The thread that delivers a job's stored metrics to one tracking service, from where it stopped.

It reads one batch at a time from the database, so that a service that is away costs neither memory nor time: what it
has missed is read when it answers again, in this attempt or a later one.
"""

import logging
import queue
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from app.database.engine import Database
from app.database.transient_errors import is_transient
from workers.tracking.child import START_SECONDS, TrackingChild, plain_child
from workers.tracking.failures import NotDelivered, ProcessEnded
from workers.tracking.points import next_batch
from workers.tracking.run_facts import CALLS_IN_A_ROUND

log = logging.getLogger(__name__)

FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 5.0, 60.0  # after failures
TIMEOUTS_IN_AN_ANSWER = CALLS_IN_A_ROUND + 1.0  # more than that, the child hangs
GIVING_UP_SECONDS = 5.0
TOO_LATE = "it does not answer in time"


@dataclass(frozen=True, kw_only=True)
class TrackingService:
    """``what`` names it in events; ``first`` is the first request of its process, with the service's token."""

    what: str
    first: Mapping[str, Any] = field(repr=False)
    timeout_seconds: float
    flush_seconds: float
    start: Callable[[], TrackingChild] = field(default=plain_child, repr=False)  # raises NotDelivered
    # Its client delivers in the background: what has arrived is known when the run is opened, and when it has ended.
    is_late: bool = False


@dataclass
class Round:
    """One round of delivery: what is there, then how the attempt has ended, and the job's state, if they are given."""

    outcome: str = ""
    state: str = ""
    at_ms: int = 0
    is_asked: bool = False  # by the supervisor, whose ranks have ended
    is_done: threading.Event = field(default_factory=threading.Event)


class TrackingRelay:
    """``on_refused`` is called, on the relay's thread, when the service first says no."""

    def __init__(self, db: Database, job_id: str, service: TrackingService, on_refused: Callable[[str], None]) -> None:
        self._db, self._job_id, self._service, self._on_refused = db, job_id, service, on_refused
        self._rounds: queue.SimpleQueue[Round | None] = queue.SimpleQueue()
        self._child: TrackingChild | None = None
        self._lock = threading.Lock()
        self._gives_up = False
        self._has_warned = False  # of a refusal
        self._has_ended = False  # its process, at the last try
        self._pause = 0.0  # after failures
        self.reached: int | None = None  # arrival number up to which it has the points; None: not known yet
        self._given = 0  # up to which the child has them
        self.problem = ""  # of the last try
        self._thread = threading.Thread(target=self._run, name="tracking", daemon=True)

    @property
    def what(self) -> str:
        return self._service.what

    def start(self) -> None:
        self._thread.start()

    @property
    def is_late(self) -> bool:
        return self._service.is_late

    def begin_round(self, *, outcome: str = "", state: str = "", at_ms: int = 0) -> Round:
        """Have the rest delivered, and then the outcome of the attempt, or the state of the job."""
        last = Round(outcome, state, at_ms, is_asked=True)
        self._rounds.put(last)
        return last

    def wait(self, last: Round, seconds: float) -> None:
        """Wait until the round has ended; after ``seconds`` the service is given up for good."""
        if not last.is_done.wait(seconds):
            self.problem = self.problem or TOO_LATE
            self._give_up()
            last.is_done.wait(GIVING_UP_SECONDS)

    def close(self) -> None:
        """End thread and process at once; a thread that is still starting its process is left behind."""
        self._give_up()
        self._rounds.put(None)
        if self._thread.ident is not None:
            self._thread.join(GIVING_UP_SECONDS)

    def _give_up(self) -> None:
        with self._lock:
            self._gives_up = True
            if self._child is not None:
                self._child.kill()

    def _run(self) -> None:
        due: Round | None = Round()
        try:
            while due is not None:
                self._try(due)
                due.is_done.set()
                due = self._next()
        finally:
            self._drop_child()

    def _next(self) -> Round | None:
        try:
            return self._rounds.get(timeout=self._pause or self._service.flush_seconds)
        except queue.Empty:
            return Round()

    def _try(self, due: Round) -> None:
        """Never raises: the job continues whatever happens here."""
        try:
            try:
                self._carry_out(due)
            except ProcessEnded:
                if not due.is_asked:  # another process would be killed with the ranks, too
                    raise
                self._drop_child()
                self._carry_out(due)
        except NotDelivered as error:
            self._failed(error)
        except Exception as error:
            if not is_transient(error):
                log.exception("%s is not served because of a fault of the platform", self.what)
            self._failed(NotDelivered(f"a fault of the platform: {type(error).__name__}"))
        else:
            self._pause, self.problem, self._has_ended = 0.0, "", False

    def _failed(self, error: NotDelivered) -> None:
        self._drop_child()
        self._pause = min(max(self._pause * 2, FIRST_PAUSE_SECONDS), LONGEST_PAUSE_SECONDS)
        is_first_end = isinstance(error, ProcessEnded) and not self._has_ended  # perhaps with the ranks
        self._has_ended = isinstance(error, ProcessEnded)
        if self._gives_up or is_first_end:
            return
        log.warning("%s: %s", self.what, error.message)
        self.problem = error.message
        if error.refused and not self._has_warned:
            self._has_warned = True
            self._on_refused(f"{self.what}: {error.message}")

    def _carry_out(self, due: Round) -> None:
        """Raises NotDelivered."""
        if self._child is None:
            self._open()
        while batch := next_batch(self._db, self._job_id, self._given):
            self.reached = self._ask({"points": batch.points, "seq": batch.seq, "attempt": batch.attempt})
            self._given = batch.seq
        if due.outcome and self.is_late:
            self.reached = self._ask({"outcome": due.outcome, "seq": self._given})
        if due.state:
            self._ask({"state": due.state, "at_ms": due.at_ms, "seq": self._given})

    def _open(self) -> None:
        """Raises NotDelivered."""
        with self._lock:
            if self._gives_up:
                raise NotDelivered(TOO_LATE)
        self._keep(self._service.start())
        self.reached = self._given = self._ask(self._service.first, START_SECONDS)

    def _keep(self, child: TrackingChild) -> None:
        with self._lock:
            self._child = child
            if self._gives_up:  # while it was started
                child.kill()

    def _ask(self, request: Mapping[str, Any], more_seconds: float = 0.0) -> int:
        if self._child is None:
            raise ProcessEnded
        return self._child.ask(request, self._service.timeout_seconds * TIMEOUTS_IN_AN_ANSWER + more_seconds)

    def _drop_child(self) -> None:
        with self._lock:
            child, self._child = self._child, None
        if child is not None:
            child.close()
