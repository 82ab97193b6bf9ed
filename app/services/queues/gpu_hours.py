"""GPU-hours of projects by month, of ended and running attempts."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import Insert, func, select
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.orm import Session

from app.domain.errors import InvalidRequest
from app.domain.lifecycle.states import HELD
from app.domain.units import WHOLE
from app.models import Attempt, Job, Project, ProjectUsage, Reservation
from app.models.base import utc_now
from app.security.permissions import Caller

PROJECT, MONTH = "project", "month"
GROUPS = (PROJECT, MONTH)
# Of each running attempt on GPUs its start, and the share of all its devices together.
_RUNNING = (
    select(Job.project, Attempt.job_id, Attempt.started_at, func.sum(Reservation.share).label("share"))
    .join(Job, Job.id == Attempt.job_id)
    .join(Reservation, (Reservation.job_id == Attempt.job_id) & (Reservation.attempt == Attempt.number))
    .where(Job.status.in_(HELD), Attempt.device_type != "cpu", Attempt.started_at.is_not(None))
    .group_by(Job.project, Attempt.job_id, Attempt.number, Attempt.started_at)
)


def used(session: Session, names: Collection[str]) -> dict[str, float]:
    """Project → GPU-hours in this month, of ended and running attempts."""
    if not names:
        return {}
    now = utc_now()
    begin = month_of(now)
    ended = select(ProjectUsage.project, ProjectUsage.gpu_seconds).where(
        ProjectUsage.project.in_(names), ProjectUsage.month == f"{begin:%Y-%m}"
    )
    seconds = dict.fromkeys(names, 0.0) | {row.project: row.gpu_seconds for row in session.execute(ended)}
    for row in session.execute(_RUNNING.where(Job.project.in_(names))):
        ran = max(0.0, (now - max(row.started_at, begin)).total_seconds())
        seconds[row.project] += ran * row.share / WHOLE
    return {name: each / 3600 for name, each in seconds.items()}


def of_running(session: Session, job_ids: Collection[str]) -> dict[str, float]:
    """Job → GPU-seconds of its running attempt until now; jobs without one are left out."""
    now, seconds = utc_now(), dict[str, float]()
    for row in session.execute(_RUNNING.where(Job.id.in_(job_ids))):
        ran = max(0.0, (now - row.started_at).total_seconds())
        seconds[row.job_id] = seconds.get(row.job_id, 0.0) + ran * row.share / WHOLE
    return seconds


@dataclass(frozen=True, kw_only=True)
class GpuHours:
    """Sums; what they are not by is None. ``month`` as 2026-11."""

    project: str | None
    month: str | None
    gpu_hours: float


def by_project_and_month(session: Session, caller: Caller, filters: Mapping[str, Any]) -> list[GpuHours]:
    """GPU-hours of the projects that the caller sees, of ended and running attempts: the newest month first.

    ``filters``: ``by``, any of GROUPS, and ``project``, ``since`` and ``until``, the first and the last month. Raises
    InvalidRequest for months in the wrong order.
    """
    since, until = filters.get("since") or "", filters.get("until") or "9999-12"
    if until < since:
        raise InvalidRequest(f"until ({until}) is before since ({since}); exchange them", field="until")
    names = set(session.scalars(select(Project.name)))
    wanted = {name for name in names if caller.sees(name) and filters.get("project") in (None, name)}
    ended = select(ProjectUsage).where(ProjectUsage.project.in_(wanted), ProjectUsage.month.between(since, until))
    hours = {(row.project, row.month): row.gpu_seconds / 3600 for row in session.scalars(ended)}
    this_month = f"{month_of(utc_now()):%Y-%m}"
    if since <= this_month <= until:
        hours |= {(name, this_month): each for name, each in used(session, wanted).items() if each}
    sums: dict[tuple[str | None, str | None], float] = {}
    for (project, month), each in hours.items():
        key = (project if PROJECT in filters["by"] else None, month if MONTH in filters["by"] else None)
        sums[key] = sums.get(key, 0.0) + each
    rows = (GpuHours(project=key[0], month=key[1], gpu_hours=round(each, 3)) for key, each in sums.items())
    return sorted(sorted(rows, key=lambda row: row.project or ""), key=lambda row: row.month or "", reverse=True)


def count_gpu_seconds(session: Session, project: str, ran_seconds: float, devices: float) -> None:
    """Account for the usage of an attempt that ends now, split by month."""
    end = utc_now()
    begin = end - timedelta(seconds=ran_seconds)
    while devices and begin < end:
        month = max(begin, month_of(end))
        add(session, project, month, (end - month).total_seconds() * devices)
        end = month


def month_of(moment: datetime) -> datetime:
    """Start of the month; the first instant of a month counts to the previous one."""
    before = moment.astimezone(UTC) - timedelta(microseconds=1)
    return before.replace(day=1, hour=0, minute=0, second=0, microsecond=0)


def next_month(moment: datetime) -> datetime:
    """Start of the month after it."""
    return (month_of(moment) + timedelta(days=32)).replace(day=1)


def add(session: Session, project: str, month: datetime, gpu_seconds: float) -> None:
    """Add to what the project has used in the month."""
    insert = postgresql.insert if session.get_bind().dialect.name == "postgresql" else sqlite.insert
    new = insert(ProjectUsage).values(project=project, month=f"{month:%Y-%m}", gpu_seconds=gpu_seconds)
    added: Insert = new.on_conflict_do_update(
        index_elements=["project", "month"], set_={"gpu_seconds": ProjectUsage.gpu_seconds + new.excluded.gpu_seconds}
    )
    session.execute(added)
