"""Events and trained steps of a job in one order, for clients that have one list of both."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import ColumnElement, and_, or_, select
from sqlalchemy.orm import InstrumentedAttribute, Session

from app.domain.json_numbers import json_number, number_of
from app.models import JobEvent, Metric

_OF_STEP, _OF_EVENT = 0, 1  # at one time an event is later than a step


@dataclass(frozen=True, kw_only=True)
class TrainedStep:
    """The metrics of a step; ``at``: when the first of the names asked for was measured."""

    step: int
    at: datetime
    values: Mapping[str, float | str]


Entry = JobEvent | TrainedStep
Key = tuple[datetime, int, int]


def newest(session: Session, job_id: str, names: Sequence[str], *, limit: int, after: Key | None = None) -> list[Entry]:
    """Newest first, up to ``limit``, or those after the entry with this key.

    ``names``: metrics to read; every trained step has the first of them.
    """
    entries: list[Entry] = [*_events(session, job_id, limit, after), *_steps(session, job_id, names, limit, after)]
    return sorted(entries, key=key_of, reverse=True)[:limit]


def key_of(entry: Entry) -> Key:
    """The place of an entry in the order."""
    if isinstance(entry, JobEvent):
        return entry.at, _OF_EVENT, entry.seq
    return entry.at, _OF_STEP, entry.step


def key_of_event(session: Session, job_id: str, event_id: str) -> Key | None:
    """None where the job has no such event."""
    found = session.scalar(select(JobEvent).where(JobEvent.job_id == job_id, JobEvent.id == event_id))
    return key_of(found) if found is not None else None


def key_of_step(session: Session, job_id: str, name: str, step: int) -> Key | None:
    """None where the metric was not measured at this step."""
    at = session.scalar(select(Metric.at).where(Metric.job_id == job_id, Metric.name == name, Metric.step == step))
    return (at, _OF_STEP, step) if at is not None else None


def _events(session: Session, job_id: str, limit: int, after: Key | None) -> Sequence[JobEvent]:
    query = select(JobEvent).where(JobEvent.job_id == job_id)
    if after is not None:
        query = query.where(_before(JobEvent.at, JobEvent.seq, _OF_EVENT, after))
    return session.scalars(query.order_by(JobEvent.at.desc(), JobEvent.seq.desc()).limit(limit)).all()


def _steps(session: Session, job_id: str, names: Sequence[str], limit: int, after: Key | None) -> Sequence[TrainedStep]:
    query = select(Metric.step, Metric.at).where(Metric.job_id == job_id, Metric.name == names[0])
    if after is not None:
        query = query.where(_before(Metric.at, Metric.step, _OF_STEP, after))
    rows = session.execute(query.order_by(Metric.at.desc(), Metric.step.desc()).limit(limit))
    times: dict[int, datetime] = {row.step: row.at for row in rows}
    values: dict[int, dict[str, float | str]] = {step: {} for step in times}
    measured = select(Metric).where(Metric.job_id == job_id, Metric.name.in_(names), Metric.step.in_(times))
    for point in session.scalars(measured) if times else ():
        values[point.step][point.name] = json_number(number_of(point.value, point.special))
    return [TrainedStep(step=step, at=at, values=values[step]) for step, at in times.items()]


def _before(
    at: InstrumentedAttribute[datetime], number: InstrumentedAttribute[int], kind: int, after: Key
) -> ColumnElement[bool]:
    """Whether an entry of this kind follows the one with the key, as newer ones are first."""
    moment, other, last = after
    if kind != other:
        return at <= moment if kind < other else at < moment
    return or_(at < moment, and_(at == moment, number < last))
