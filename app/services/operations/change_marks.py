"""Marks of what pages show: a short text per topic that differs whenever the topic has changed.

Viewers compare marks and ask for what has changed. One process computes a mark a few times a second at most, however
many viewers it has.
"""

import hashlib
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TypeVar

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from app.database.engine import Database
from app.domain.errors import InvalidRequest, TrainyardError
from app.domain.ids import moment_of
from app.domain.lifecycle.states import TERMINAL, JobState
from app.models import Job, JobEvent, Node, Queue, Reservation, StuckDevice, Sweep
from app.security.permissions import Caller
from app.services.queues.limits import WAITING
from app.services.requests.short_cache import ShortCache
from app.storage.keys import logs_key
from app.storage.storage import Storage

T = TypeVar("T")

# A batch of changes follows the one before after this time at the earliest.
SECONDS = 0.25
# Of a log, which is files that may be in an object store.
LOG_SECONDS = 1.0
MOST_TOPICS = 64
NOTHING = "0"  # the mark of what is not there, or not the caller's
_TOPIC = re.compile(r"(jobs|nodes|queue)|(job|metrics|log):(job-[0-9a-f-]{36})|(sweep):([a-z]+-[0-9a-f-]{36})")
_ACTIVE = sorted(set(JobState) - TERMINAL)
_MOST_RANKS = 16


@dataclass(frozen=True)
class Topic:
    """``of``: the id of the job or sweep; empty for all that the caller sees."""

    kind: str
    of: str = ""

    def __str__(self) -> str:
        return f"{self.kind}:{self.of}" if self.of else self.kind


@dataclass(frozen=True)
class Mark:
    """``at``: when the newest change was, as far as it is known; None: long ago."""

    text: str = NOTHING
    at: datetime | None = None


@dataclass(frozen=True)
class _JobMarks:
    project: str
    job: Mark
    metrics: Mark
    attempt: int
    has_ended: bool


def topics_of(texts: Sequence[str]) -> list[Topic]:
    """Raises InvalidRequest for a text that is no topic."""
    if len(texts) > MOST_TOPICS:
        raise InvalidRequest(f"names {len(texts)} topics; at most {MOST_TOPICS} can be followed", field="topic")
    return [_topic(text) for text in texts]


class ChangeMarks:
    """One per process. Marks of foreign objects are those of objects that do not exist."""

    def __init__(self, cache: ShortCache | None = None) -> None:
        self._cache = cache or ShortCache()

    def of(self, db: Database, storage: Storage, caller: Caller, topics: Sequence[Topic]) -> list[Mark]:
        return [self._mark(db, storage, caller, topic) for topic in topics]

    def _mark(self, db: Database, storage: Storage, caller: Caller, topic: Topic) -> Mark:
        if topic.kind in ("job", "metrics", "log"):
            return self._of_job(db, storage, caller, topic)
        if topic.kind == "sweep":
            project, mark = self._shared(db, ("sweep", topic.of), lambda session: _sweep(session, topic.of))
            return mark if caller.sees(project) else Mark()
        if topic.kind == "nodes":
            return self._shared(db, ("nodes",), _nodes)
        seen = {"jobs": _jobs, "queue": _queue}[topic.kind]
        return self._shared(db, (topic.kind, caller.project), lambda session: seen(session, caller.project))

    def _of_job(self, db: Database, storage: Storage, caller: Caller, topic: Topic) -> Mark:
        found = self._shared(db, ("job", topic.of), lambda session: _job(session, topic.of))
        if found is None or not caller.sees(found.project):
            return Mark()
        if topic.kind != "log":
            return found.job if topic.kind == "job" else found.metrics
        key = ("log", topic.of, found.attempt, found.has_ended)
        return self._cache.get(key, LOG_SECONDS, lambda: _log(storage, topic.of, found))

    def _shared(self, db: Database, key: tuple[str | None, ...], compute: Callable[[Session], T]) -> T:
        def read() -> T:
            with db.read() as session:
                return compute(session)

        return self._cache.get(key, SECONDS, read)


def _topic(text: str) -> Topic:
    match = _TOPIC.fullmatch(text)
    if match is None:
        raise InvalidRequest(
            f"no topic {text[:64]!r}; there are jobs, nodes, queue, and job:, metrics:, log: and sweep: with an id",
            field="topic",
        )
    return Topic(match[1] or match[2] or match[4], match[3] or match[5] or "")


def _text(*values: object) -> str:
    return hashlib.blake2b(repr(values).encode(), digest_size=6).hexdigest()


def _jobs(session: Session, project: str | None) -> Mark:
    """By the jobs that have not ended, which are few; changes of ended jobs count for all projects together alone."""
    active = select(func.count(), func.max(Job.updated_at), func.sum(Job.version), func.sum(Job.metric_seq))
    active = active.where(Job.status.in_(_ACTIVE))
    if project is not None:
        active = active.where(Job.project == project)
    row = session.execute(active).one()
    event = session.scalar(select(func.max(JobEvent.id)))
    moments = [moment for moment in (row[1], moment_of(event) if event else None) if moment is not None]
    return Mark(_text(tuple(row), event if project is None else ""), max(moments, default=None))


def _queue(session: Session, project: str | None) -> Mark:
    waiting = select(func.count(), func.max(Job.updated_at), func.sum(Job.version), func.max(Job.queued_at))
    waiting = waiting.where(Job.status.in_(WAITING))
    if project is not None:
        waiting = waiting.where(Job.project == project)
    row = session.execute(waiting).one()
    queues = session.execute(
        select(Queue.name, Queue.is_paused, Queue.max_running_jobs, Queue.max_waiting_jobs, Queue.weight).order_by(
            Queue.name
        )
    ).all()
    return Mark(_text(tuple(row), queues), row[1])


def _nodes(session: Session) -> Mark:
    nodes = session.execute(
        select(Node.name, Node.state, Node.quarantine_reason, Node.admin_labels, Node.lost_at).order_by(Node.name)
    ).all()
    held = session.execute(
        select(func.count(), func.sum(Reservation.share), func.sum(Reservation.attempt), func.max(Reservation.job_id))
    ).one()
    stuck = session.execute(select(func.count(), func.max(StuckDevice.since))).one()
    moments = [moment for moment in (*(row.lost_at for row in nodes), stuck[1]) if moment is not None]
    return Mark(_text(nodes, tuple(held), tuple(stuck)), max(moments, default=None))


def _job(session: Session, job_id: str) -> _JobMarks | None:
    row = session.execute(
        select(
            Job.project,
            Job.status,
            Job.attempt,
            Job.version,
            Job.event_seq,
            Job.metric_seq,
            Job.current_step,
            Job.updated_at,
        ).where(Job.id == job_id)
    ).one_or_none()
    if row is None:
        return None
    return _JobMarks(
        project=row.project,
        job=Mark(_text(tuple(row)), row.updated_at),
        metrics=Mark(_text(row.metric_seq, row.attempt), row.updated_at),
        attempt=row.attempt,
        has_ended=row.status in TERMINAL,
    )


def _sweep(session: Session, sweep_id: str) -> tuple[str, Mark]:
    columns = Sweep.project, Sweep.status, Sweep.version, Sweep.event_seq, Sweep.seq, Sweep.next_number
    row = session.execute(select(*columns, Sweep.updated_at).where(Sweep.id == sweep_id)).one_or_none()
    return (row.project, Mark(_text(tuple(row)), row.updated_at)) if row is not None else ("", Mark())


def _log(storage: Storage, job_id: str, of: _JobMarks) -> Mark:
    """By the names of its chunks and the sizes of the newest ones, which grow."""
    folder = logs_key(job_id, of.attempt)
    try:
        names = sorted(storage.names(folder)) if of.attempt else []
        newest = {name.rpartition("-")[0]: name for name in names}  # of each rank
        sizes = [storage.size(f"{folder}/{name}") for name in list(newest.values())[:_MOST_RANKS]]
    except TrainyardError:
        return Mark()  # the storage does not answer now, or a file was deleted meanwhile
    return Mark(_text(of.attempt, of.has_ended, len(names), sizes), of.job.at)
