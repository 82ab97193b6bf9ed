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
from app.storage.object_keys import logs_key
from app.storage.storage import Storage

T = TypeVar("T")

# A batch of changes follows the one before after this time at the earliest.
SECONDS = 0.25
# Of a log, which is files that may be in an object store.
LOG_SECONDS = 1.0
# Pages follow fewer: those that compare follow 20 jobs, and none more than one log, whose mark asks the storage.
MOST_TOPICS = 32
MOST_LOGS = 2
NOTHING = "0"  # the mark of what is not there, or not the caller's
_TOPIC = re.compile(r"(jobs|nodes|queue)|(job|metrics|log):(job-[0-9a-f-]{36})|(sweep):([a-z]+-[0-9a-f-]{36})")
_ACTIVE = sorted(set(JobState) - TERMINAL)
_MOST_RANKS = 16
_OF_JOB = ("job", "metrics", "log")


@dataclass(frozen=True)
class Topic:
    """``of``: the id of the job or sweep; empty for all that the caller sees."""

    kind: str
    of: str = ""

    def __str__(self) -> str:
        return f"{self.kind}:{self.of}" if self.of else self.kind


@dataclass(frozen=True)
class ChangeMark:
    """``at``: when the newest change was, as far as it is known; None: long ago."""

    text: str = NOTHING
    at: datetime | None = None


@dataclass(frozen=True)
class _JobMarks:
    project: str
    job: ChangeMark
    metrics: ChangeMark
    attempt: int
    has_ended: bool


def topics_of(texts: Sequence[str]) -> list[Topic]:
    """Raises InvalidRequest for a text that is no topic."""
    if len(texts) > MOST_TOPICS:
        raise InvalidRequest(f"names {len(texts)} topics; at most {MOST_TOPICS} can be followed", field="topic")
    topics = [_topic(text) for text in texts]
    if (logs := sum(topic.kind == "log" for topic in topics)) > MOST_LOGS:
        raise InvalidRequest(f"names {logs} logs; at most {MOST_LOGS} can be followed", field="topic")
    return topics


class ChangeMarks:
    """One per process. Marks of foreign objects are those of objects that do not exist."""

    def __init__(self, cache: ShortCache | None = None) -> None:
        self._cache = cache or ShortCache()

    def of(self, db: Database, storage: Storage, caller: Caller, topics: Sequence[Topic]) -> list[ChangeMark]:
        jobs = self._all(db, "job", [topic.of for topic in topics if topic.kind in _OF_JOB], _read_jobs)
        sweeps = self._all(db, "sweep", [topic.of for topic in topics if topic.kind == "sweep"], _read_sweeps)
        marks = []
        for topic in topics:
            if topic.kind in _OF_JOB:
                marks.append(self._of_job(storage, caller, topic, jobs[topic.of]))
            elif topic.kind == "sweep":
                project, mark = sweeps[topic.of] or ("", ChangeMark())
                marks.append(mark if caller.sees(project) else ChangeMark())
            else:
                marks.append(self._of_all(db, caller, topic))
        return marks

    def _of_all(self, db: Database, caller: Caller, topic: Topic) -> ChangeMark:
        if topic.kind == "nodes":
            return self._shared(db, ("nodes",), _nodes)
        seen = {"jobs": _jobs, "queue": _queue}[topic.kind]
        return self._shared(db, (topic.kind, caller.project), lambda session: seen(session, caller.project))

    def _of_job(self, storage: Storage, caller: Caller, topic: Topic, found: _JobMarks | None) -> ChangeMark:
        if found is None or not caller.sees(found.project):
            return ChangeMark()
        if topic.kind != "log":
            return found.job if topic.kind == "job" else found.metrics
        key = ("log", topic.of, found.attempt, found.has_ended)
        return self._cache.get(key, LOG_SECONDS, lambda: _log(storage, topic.of, found))

    def _all(
        self, db: Database, kind: str, ids: Sequence[str], read: Callable[[Session, Sequence[str]], dict[str, T]]
    ) -> dict[str, T | None]:
        """What is known of each id; by one query of those whose marks are not kept now."""

        def compute(keys: Sequence[tuple[str, str]]) -> dict[tuple[str, str], T]:
            with db.read() as session:
                return {(kind, of): each for of, each in read(session, [of for _, of in keys]).items()}

        found = self._cache.get_all([(kind, of) for of in ids], SECONDS, compute)
        return {of: each for (_, of), each in found.items()}

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


def _jobs(session: Session, project: str | None) -> ChangeMark:
    """By the jobs that have not ended, which are few; changes of ended jobs count for all projects together alone."""
    active = select(func.count(), func.max(Job.updated_at), func.sum(Job.version), func.sum(Job.metric_seq))
    active = active.where(Job.status.in_(_ACTIVE))
    if project is not None:
        active = active.where(Job.project == project)
    row = session.execute(active).one()
    event = session.scalar(select(func.max(JobEvent.id)))
    moments = [moment for moment in (row[1], moment_of(event) if event else None) if moment is not None]
    return ChangeMark(_text(tuple(row), event if project is None else ""), max(moments, default=None))


def _queue(session: Session, project: str | None) -> ChangeMark:
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
    return ChangeMark(_text(tuple(row), queues), row[1])


def _nodes(session: Session) -> ChangeMark:
    nodes = session.execute(
        select(Node.name, Node.state, Node.quarantine_reason, Node.admin_labels, Node.lost_at).order_by(Node.name)
    ).all()
    held = session.execute(
        select(func.count(), func.sum(Reservation.share), func.sum(Reservation.attempt), func.max(Reservation.job_id))
    ).one()
    stuck = session.execute(select(func.count(), func.max(StuckDevice.since))).one()
    moments = [moment for moment in (*(row.lost_at for row in nodes), stuck[1]) if moment is not None]
    return ChangeMark(_text(nodes, tuple(held), tuple(stuck)), max(moments, default=None))


def _read_jobs(session: Session, ids: Sequence[str]) -> dict[str, _JobMarks]:
    rows = session.execute(
        select(
            Job.id,
            Job.project,
            Job.status,
            Job.attempt,
            Job.version,
            Job.event_seq,
            Job.metric_seq,
            Job.current_step,
            Job.updated_at,
        ).where(Job.id.in_(ids))
    )
    return {
        row.id: _JobMarks(
            project=row.project,
            job=ChangeMark(_text(tuple(row)), row.updated_at),
            metrics=ChangeMark(_text(row.metric_seq, row.attempt), row.updated_at),
            attempt=row.attempt,
            has_ended=row.status in TERMINAL,
        )
        for row in rows
    }


def _read_sweeps(session: Session, ids: Sequence[str]) -> dict[str, tuple[str, ChangeMark]]:
    """Id → its project and mark."""
    columns = Sweep.id, Sweep.project, Sweep.status, Sweep.version, Sweep.event_seq, Sweep.seq, Sweep.next_number
    rows = session.execute(select(*columns, Sweep.updated_at).where(Sweep.id.in_(ids)))
    return {row.id: (row.project, ChangeMark(_text(tuple(row)), row.updated_at)) for row in rows}


def _log(storage: Storage, job_id: str, of: _JobMarks) -> ChangeMark:
    """By the names of its chunks and the sizes of the newest ones, which grow."""
    folder = logs_key(job_id, of.attempt)
    try:
        names = sorted(storage.names(folder)) if of.attempt else []
        newest = {name.rpartition("-")[0]: name for name in names}  # of each rank
        sizes = [storage.size(f"{folder}/{name}") for name in list(newest.values())[:_MOST_RANKS]]
    except TrainyardError:
        return ChangeMark()  # the storage does not answer now, or a file was deleted meanwhile
    return ChangeMark(_text(of.attempt, of.has_ended, len(names), sizes), of.job.at)
