"""Events and trained steps of a job in one order, for clients that have one list of both.

Steps are ordered by number, which an index answers. Each is placed among the events by when it was measured, or when a
later step was, if that is earlier: a resumed job measures steps again before it reaches those that are listed above.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from sqlalchemy import ColumnElement, and_, func, or_, select
from sqlalchemy.orm import Session

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
Key = tuple[datetime, int, int]  # the place of an entry in the order


def newest(session: Session, job_id: str, names: Sequence[str], *, limit: int, after: Key | None = None) -> list[Entry]:
    """Newest first, up to ``limit``, or those after the entry with this key.

    ``names``: metrics to read; every trained step has the first of them.
    """
    placed: dict[Key, Entry] = {_key_of(each): each for each in _events(session, job_id, limit, after)}
    moment = after[0] if after is not None else datetime.max.replace(tzinfo=UTC)
    for each in _steps(session, job_id, names, limit, after):
        moment = min(moment, each.at)
        placed[moment, _OF_STEP, each.step] = each
    return [placed[key] for key in sorted(placed, reverse=True)[:limit]]


def key_of_event(session: Session, job_id: str, event_id: str) -> Key | None:
    """None where the job has no such event."""
    found = session.scalar(select(JobEvent).where(JobEvent.job_id == job_id, JobEvent.id == event_id))
    return _key_of(found) if found is not None else None


def key_of_step(session: Session, job_id: str, name: str, step: int) -> Key | None:
    """None where the metric was not measured at this step."""
    query = select(func.min(Metric.step), func.min(Metric.at)).where(Metric.job_id == job_id, Metric.name == name)
    first, moment = session.execute(query.where(Metric.step >= step)).one()
    return (moment, _OF_STEP, step) if first == step else None


def _key_of(event: JobEvent) -> Key:
    return event.at, _OF_EVENT, event.seq


def _events(session: Session, job_id: str, limit: int, after: Key | None) -> Sequence[JobEvent]:
    query = select(JobEvent).where(JobEvent.job_id == job_id)
    if after is not None:
        moment, kind, seq = after
        is_older: ColumnElement[bool] = JobEvent.at < moment
        if kind == _OF_EVENT:
            is_older = or_(is_older, and_(JobEvent.at == moment, JobEvent.seq < seq))
        query = query.where(is_older)
    return session.scalars(query.order_by(JobEvent.at.desc(), JobEvent.seq.desc()).limit(limit)).all()


def _steps(session: Session, job_id: str, names: Sequence[str], limit: int, after: Key | None) -> Sequence[TrainedStep]:
    trained = (Metric.job_id == job_id, Metric.name == names[0])
    query = select(Metric.step, Metric.at).where(*trained)
    if after is not None:
        moment, kind, number = after
        older = select(func.max(Metric.step)).where(*trained, Metric.at <= moment).scalar_subquery()
        query = query.where(Metric.step < number if kind == _OF_STEP else Metric.step <= older)
    rows = session.execute(query.order_by(Metric.step.desc()).limit(limit))
    times: dict[int, datetime] = {row.step: row.at for row in rows}
    values: dict[int, dict[str, float | str]] = {step: {} for step in times}
    measured = select(Metric).where(Metric.job_id == job_id, Metric.name.in_(names), Metric.step.in_(times))
    for point in session.scalars(measured) if times else ():
        values[point.step][point.name] = json_number(number_of(point.value, point.special))
    return [TrainedStep(step=step, at=at, values=values[step]) for step, at in times.items()]
