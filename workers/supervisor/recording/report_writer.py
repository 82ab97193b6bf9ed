"""The thread that writes the ranks' reports to the database: in order, in batches, with retries."""

import logging
import math
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from app.database.engine import Database
from app.database.transient_errors import is_transient
from app.domain.errors import IllegalTransition, LeaseLost, StaleJob
from app.domain.lifecycle.events import EventType
from app.domain.lifecycle.states import JobState
from app.services.attempts import checkpoints, work_orders
from app.services.attempts.work_orders import WorkOrder
from app.services.lifecycle import transitions
from app.services.telemetry import stored_metrics as telemetry
from app.services.telemetry import summaries
from app.services.telemetry.stored_metrics import MetricValue
from config.redaction import Redaction
from trainyard.protocol.messages import Progress, clean_text
from workers.supervisor.recording.metric_buffer import MetricBacklog
from workers.supervisor.recording.rate_limit import TokenBucket

log = logging.getLogger(__name__)

RETRY_SECONDS = 1.0
# The lease is renewed through the same database: a long write would make the supervisor miss a renewal.
POINTS_PER_WRITE = 1000
LEAST_REST_SECONDS = 0.02
MOST_REST_SECONDS = 0.5
PHASE_RETRIES = 3
# Each change of phase is a line in the job's history; a rank may send thousands a second.
PHASE_BURST = 20
PHASE_SECONDS = 1.0
MAX_NOTE = 8000


@dataclass(frozen=True, kw_only=True)
class Note:
    """A line for the job's history; ``retires`` names an unusable checkpoint that is deleted with it, ``columns`` are
    those of the job that change with it.
    """

    kind: EventType
    message: str
    reason: str = ""
    data: dict[str, Any] = field(default_factory=dict)
    retires: str = ""
    columns: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class PhaseChange:
    to: JobState
    start_step: int | None = None


@dataclass(frozen=True)
class SavesOnRequest:
    """Whether the script has announced that it saves on request."""

    can: bool


@dataclass
class WriteBarrier:
    """Done when everything before it is written."""

    is_passed: bool = False


Item = PhaseChange | Note | SavesOnRequest | WriteBarrier


class Reporter:
    """Takes reports from the supervisor's loop, writes them on a thread; ``on_lost`` is called on a stale token."""

    def __init__(
        self, db: Database, work: WorkOrder, on_lost: Callable[[str], None], redaction: Redaction | None = None
    ) -> None:
        self._redaction = redaction or Redaction()
        self._db = db
        self._work = work
        self._batch_seconds = work.limits.progress_report_interval_ms / 1000
        self._on_lost = on_lost
        self._changed = threading.Condition()
        self._progress: Progress | None = None
        self._eta_seconds: float | None = None
        self._points = MetricBacklog()
        self._gpu_samples: list[float] = []
        self._summaries = summaries.SummaryCount()
        self._items: deque[Item] = deque()
        self._held: PhaseChange | None = None  # the newest of those that came too fast
        self._phases = TokenBucket(PHASE_BURST, PHASE_SECONDS)
        self._drop_refused: Callable[[], object] = lambda: None  # drops what is being written
        self._writing = False
        self._urgent = False
        self._ended = False
        self._thread = threading.Thread(target=self._relay, name="reports", daemon=True)
        self._thread.start()

    def lose(self, reason: str) -> None:
        """The lease is lost: stop writing."""
        self._on_lost(reason)

    def progress(self, progress: Progress, *, eta_seconds: float | None = None) -> None:
        with self._waiting_for_more():
            self._progress, self._eta_seconds = progress, eta_seconds

    def points(self, points: list[MetricValue]) -> None:
        with self._waiting_for_more():
            self._points.add(points)

    def gpu_sample(self, utilization: float) -> None:
        """Percent of the time that the attempt's GPUs were busy since the last sample."""
        with self._waiting_for_more():
            self._gpu_samples.append(utilization)

    def add(self, item: Item) -> None:
        """Queue a phase change or a note; earlier reports are written before it, at once.

        Of phases that change too fast only the newest is written, a moment later.
        """
        with self._changed:
            if isinstance(item, PhaseChange) and (self._held is not None or not self._phases.take()):
                self._held = item
            else:
                self._items.append(item)
            self._changed.notify_all()

    def flush(self) -> bool:
        """Wait until all is written, across outages of the database; False when the lease was lost meanwhile."""
        with self._changed:
            self._urgent = True
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._ended or not (self._writing or self._has_something()))
            return not self._ended

    def settle(self, seconds: float) -> bool:
        """Wait until what was reported so far is written, for at most that long; False when it is not."""
        mark = WriteBarrier()
        with self._changed:
            self._items.append(mark)
            self._changed.notify_all()
            return self._changed.wait_for(lambda: self._ended or mark.is_passed, seconds)

    def close(self) -> None:
        """Stop writing."""
        with self._changed:
            self._ended = True
            self._changed.notify_all()
        self._thread.join()

    @contextmanager
    def _waiting_for_more(self) -> Iterator[None]:
        """Wake the thread only with the first report of a batch: there are many a second."""
        with self._changed:
            was_empty = not self._has_something()
            yield
            if was_empty:
                self._changed.notify_all()

    def _relay(self) -> None:
        while self._wait_for_work():
            try:
                self._write_all()
            except LeaseLost as error:
                self._finish_lost(str(error))
                return
            except Exception as error:
                if is_transient(error):
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
                self._changed.wait_for(lambda: self._ended or bool(self._items) or self._urgent, self._batch_seconds)
            if self._held is not None and (self._urgent or self._phases.take()):
                self._items.append(self._held)
                self._held = None
            self._writing = not self._ended
            return not self._ended

    def _write_all(self) -> None:
        """Remove reports from the buffers only after their commit."""
        # No more than waits now: a flood of reports must not delay a phase change forever. And no later item: reports
        # before it may have come later too.
        items, telemetry_writes = self._waiting()
        for _ in range(telemetry_writes):
            began = time.monotonic()
            self._write_telemetry()
            if self._ended:
                return
            if self._points:
                self._let_others_write(time.monotonic() - began)
        for _ in range(items):
            if self._ended:
                return
            self._drop_refused = self._items.popleft
            self._write_item(self._items[0])
            self._items.popleft()

    def _waiting(self) -> tuple[int, int]:
        """Number of items, and of writes that all telemetry takes."""
        with self._changed:
            once = self._progress is not None or bool(self._gpu_samples)
            return len(self._items), max(once, math.ceil(len(self._points) / POINTS_PER_WRITE))

    def _let_others_write(self, seconds: float) -> None:
        """Pause for as long as the last write took, so that this thread uses the database half of the time at most."""
        self._pause(min(max(seconds, LEAST_REST_SECONDS), MOST_REST_SECONDS))

    def _write_telemetry(self) -> None:
        with self._changed:
            progress, eta_seconds = self._progress, self._eta_seconds
            points = self._points.first(POINTS_PER_WRITE)
            gpu_samples = tuple(self._gpu_samples)
        reports = telemetry.TelemetryReports(
            progress=progress, eta_seconds=eta_seconds, points=points, gpu_samples=gpu_samples
        )
        work = self._work
        self._drop_refused = partial(self._forget, reports)
        telemetry.store(self._db, job_id=work.job_id, attempt=work.attempt, fence=work.fence, reports=reports)
        self._forget(reports)
        self._summarise(reports.points)

    def _summarise(self, written: Sequence[MetricValue]) -> None:
        """Update summaries now and then, apart from the points, which callers wait for."""
        self._summaries.add((point.name, point.step) for point in written)
        due = self._summaries.due()
        if due:
            self._drop_refused = partial(self._summaries.done, due)
            summaries.extend(self._db, job_id=self._work.job_id, fence=self._work.fence, newest=due)
            self._summaries.done(due)

    def _forget(self, reports: telemetry.TelemetryReports) -> None:
        with self._changed:
            if self._progress is reports.progress:
                self._progress = None
            self._points.drop(reports.points)
            del self._gpu_samples[: len(reports.gpu_samples)]

    def _write_item(self, item: Item) -> None:
        if isinstance(item, WriteBarrier):
            item.is_passed = True
            return
        if isinstance(item, Note):
            self._write_note(item)
            return
        if isinstance(item, SavesOnRequest):
            work_orders.note_can_checkpoint(self._db, self._work, can=item.can)
            return
        for _ in range(PHASE_RETRIES):
            try:
                work_orders.enter_phase(self._db, self._work, item.to, start_step=item.start_step)
                return
            except IllegalTransition as error:
                log.warning("ignored a phase that the rank reported out of order: %s", error)
                return
            except StaleJob:
                continue  # another request changed the job in that moment

    def _write_note(self, note: Note) -> None:
        work = self._work
        with self._db.write() as session:
            job = transitions.load_for_change(session, work.job_id)
            if job.fence != work.fence:
                raise LeaseLost(f"attempt {work.attempt} of job {work.job_id} has ended already")
            retired = bool(note.retires) and checkpoints.retire_unusable(session, job, note.retires)
            if note.columns:
                for name, value in note.columns.items():
                    setattr(job, name, value)
                job.mark_changed()
                session.flush()
            transitions.record_event(
                session,
                work.job_id,
                note.kind,
                actor=work.actor,
                reason=note.reason,
                message=clean_text(self._redaction(note.message), MAX_NOTE),
                data={
                    "attempt": work.attempt,
                    **_clean(note.data, self._redaction),
                    **({"retired": True} if retired else {}),
                },
            )

    def _has_something(self) -> bool:
        return self._progress is not None or bool(self._points or self._gpu_samples or self._items or self._held)

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


def _clean(data: dict[str, Any], redaction: Redaction) -> dict[str, Any]:
    """Clean and mask text from ranks."""
    texts = {key: clean_text(redaction(value), MAX_NOTE) for key, value in data.items() if isinstance(value, str)}
    return data | texts
