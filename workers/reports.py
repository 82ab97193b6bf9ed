"""The thread that carries what ranks report to the database: in order, in batches, and again when it failed."""

import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from app.domain.errors import IllegalTransition, LeaseLost, StaleJob
from app.domain.events import EventType
from app.domain.job_state import JobState
from app.extensions import Database
from app.services import attempts, lifecycle, telemetry
from app.services.attempts import Work
from app.services.telemetry import MetricPoint, Progress
from workers.database_errors import passes

log = logging.getLogger(__name__)

BATCH_SECONDS = 0.7  # progress and metrics have to be at most 2 s old
RETRY_SECONDS = 1.0
MAX_POINTS = 200_000  # kept while the database is away; beyond that the oldest are lost
PHASE_RETRIES = 3


@dataclass(frozen=True, kw_only=True)
class Note:
    """A line for the job's history."""

    kind: EventType
    message: str
    reason: str = ""
    data: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class PhaseChange:
    to: JobState
    start_step: int | None = None


Item = PhaseChange | Note


class Reporter:
    """Takes reports from the supervisor's loop, writes them on a thread; ``on_lost`` hears of a stale token."""

    def __init__(self, db: Database, work: Work, on_lost: Callable[[str], None]) -> None:
        self._db = db
        self._work = work
        self._on_lost = on_lost
        self._changed = threading.Condition()
        self._progress: Progress | None = None
        self._points: deque[MetricPoint] = deque(maxlen=MAX_POINTS)
        self._items: deque[Item] = deque()
        self._writing = False
        self._urgent = False
        self._ended = False
        self._thread = threading.Thread(target=self._relay, name="reports", daemon=True)
        self._thread.start()

    def progress(self, progress: Progress) -> None:
        with self._changed:
            self._progress = progress
            self._changed.notify_all()

    def points(self, points: list[MetricPoint]) -> None:
        with self._changed:
            self._points.extend(points)
            self._changed.notify_all()

    def add(self, item: Item) -> None:
        """A change of phase or a note; what was reported before is written before it, and both at once."""
        with self._changed:
            self._items.append(item)
            self._changed.notify_all()

    def flush(self) -> bool:
        """Wait until all is written, however long the database is away; False when the lease was lost meanwhile."""
        with self._changed:
            self._urgent = True
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._ended or not (self._writing or self._has_something()))
            return not self._ended

    def close(self) -> None:
        """Write no more."""
        with self._changed:
            self._ended = True
            self._changed.notify_all()
        self._thread.join()

    def _relay(self) -> None:
        while self._wait_for_work():
            try:
                self._write_all()
            except LeaseLost as error:
                self._finish_lost(str(error))
                return
            except Exception as error:
                if passes(error):
                    log.warning("reports could not be written yet: %s", error)
                    self._pause(RETRY_SECONDS)
                else:
                    log.exception("reports that the database refuses are dropped")
                    self._drop_refused()
            with self._changed:
                self._writing = False
                self._changed.notify_all()

    def _wait_for_work(self) -> bool:
        with self._changed:
            self._changed.wait_for(lambda: self._ended or self._has_something())
            if not self._ended and not self._items and not self._urgent:
                self._changed.wait_for(lambda: self._ended or bool(self._items) or self._urgent, BATCH_SECONDS)
            self._writing = not self._ended
            return not self._ended

    def _write_all(self) -> None:
        """Each part leaves the buffers only after it was committed."""
        self._write_telemetry()
        while self._items:
            self._write_item(self._items[0])
            self._items.popleft()

    def _drop_refused(self) -> None:
        """Go on with what comes next: the telemetry is written first, so it is to blame if there is any."""
        with self._changed:
            if self._progress is not None or self._points:
                self._progress = None
                self._points.clear()
            else:
                self._items.popleft()

    def _write_telemetry(self) -> None:
        with self._changed:
            progress, points = self._progress, list(self._points)
        if progress is None and not points:
            return
        reports = telemetry.Reports(progress=progress, points=points)
        work = self._work
        telemetry.store(self._db, job_id=work.job_id, attempt=work.attempt, fence=work.fence, reports=reports)
        with self._changed:
            if self._progress is progress:
                self._progress = None
            written = {id(point) for point in points}  # the oldest may have been pushed out meanwhile
            while self._points and id(self._points[0]) in written:
                self._points.popleft()

    def _write_item(self, item: Item) -> None:
        if isinstance(item, Note):
            self._write_note(item)
            return
        for _ in range(PHASE_RETRIES):
            try:
                attempts.enter_phase(self._db, self._work, item.to, start_step=item.start_step)
                return
            except IllegalTransition as error:
                log.warning("ignored a phase that the rank reported out of order: %s", error)
                return
            except StaleJob:
                continue  # somebody changed a wish or a label in that moment

    def _write_note(self, note: Note) -> None:
        work = self._work
        with self._db.write() as session:
            job = lifecycle.load_for_change(session, work.job_id)
            if job.fence != work.fence:
                raise LeaseLost(f"attempt {work.attempt} of job {work.job_id} was ended by somebody else")
            lifecycle.record_event(
                session,
                work.job_id,
                note.kind,
                actor=work.actor,
                reason=note.reason,
                message=note.message,
                data={"attempt": work.attempt, **note.data},
            )

    def _has_something(self) -> bool:
        return self._progress is not None or bool(self._points) or bool(self._items)

    def _pause(self, seconds: float) -> None:
        due = time.monotonic() + seconds
        with self._changed:
            self._changed.wait_for(lambda: self._ended, max(0.0, due - time.monotonic()))

    def _finish_lost(self, reason: str) -> None:
        with self._changed:
            self._ended = True
            self._writing = False
            self._changed.notify_all()
        self._on_lost(reason)
