"""Mirror of jobs in Celery's result backend: what is shown there, and which jobs changed since."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from typing import Any, cast

from sqlalchemy import Row, Table, bindparam, select, update

from app.database.engine import Database
from app.domain.lifecycle.states import RUNNING, TERMINAL, JobState
from app.models import Job
from app.models.base import utc_now
from app.services.jobs import reports

BATCH = 200
# After the result backend lost its data, jobs that ended longer ago than this are not mirrored again.
REMEMBER_ENDED_DAYS = 7
_MESSAGE_CHARACTERS = 500
_SHOWN = (
    Job.id,
    Job.status,
    Job.training_type,
    Job.name,
    Job.version,
    Job.mirrored_version,
    Job.attempt,
    Job.node_names,
    Job.project,
    Job.queue,
    Job.progress,
    Job.current_step,
    Job.total_steps,
    Job.current_epoch,
    Job.requested,
    Job.latest_metrics,
    Job.error_type,
    Job.error_message,
    Job.error_stack,
    Job.elapsed_seconds,
    Job.finished_at,
)
_MARK = (
    update(cast(Table, Job.__table__))
    .where(Job.id == bindparam("of_job"), Job.mirrored_version < bindparam("shown"))
    .values(mirrored_version=bindparam("shown"))
)


@dataclass(frozen=True, kw_only=True)
class MirroredJob:
    """A job as the result backend and Flower show it; ``report`` is that of a completed one."""

    job_id: str
    state: str
    label: str  # <training type>:<name>
    version: int
    is_first: bool
    attempt: int
    node: str
    details: dict[str, Any]
    error_stack: str | None
    elapsed_seconds: float
    finished_at: datetime | None
    report: dict[str, Any] | None


def changed(db: Database, *, limit: int = BATCH) -> list[MirroredJob]:
    """Jobs whose current version is not mirrored yet, oldest first."""
    query = select(*_SHOWN).where(Job.mirrored_version < Job.version).order_by(Job.id).limit(limit)
    with db.query() as connection:
        rows = connection.execute(query).all()
    found = _reports(db, [row.id for row in rows if row.status == JobState.COMPLETED])
    return [_image(row, found.get(row.id)) for row in rows]


def running(db: Database) -> list[MirroredJob]:
    """Running jobs, whose progress changes without a new version."""
    query = select(*_SHOWN).where(Job.status.in_(RUNNING)).order_by(Job.id)
    with db.query() as connection:
        return [_image(row, None) for row in connection.execute(query)]


def mark_mirrored(db: Database, images: Sequence[MirroredJob]) -> None:
    """Mark these versions as mirrored; a job that changed meanwhile stays due."""
    if not images:
        return
    with db.write() as session:
        session.connection().execute(_MARK, [{"of_job": each.job_id, "shown": each.version} for each in images])


def forget_mirrored(db: Database) -> None:
    """The result backend is empty: mirror all jobs again that are unfinished or ended recently."""
    since = utc_now() - timedelta(days=REMEMBER_ENDED_DAYS)
    stale = (Job.mirrored_version > 0) & (Job.status.not_in(TERMINAL) | (Job.finished_at > since))
    while True:
        with db.write() as session:
            # Rows are locked by id, as everywhere: a second lock order would cause deadlocks.
            ids = session.scalars(select(Job.id).where(stale).order_by(Job.id).limit(BATCH).with_for_update()).all()
            session.execute(
                update(Job)
                .where(Job.id.in_(ids))
                .values(mirrored_version=0)
                .execution_options(synchronize_session=False)
            )
        if len(ids) < BATCH:
            return


def _reports(db: Database, completed: Sequence[str]) -> dict[str, dict[str, Any]]:
    """By job the report of each that has completed."""
    if not completed:
        return {}
    with db.read() as session:
        jobs = session.scalars(select(Job).where(Job.id.in_(completed))).all()
        found = reports.completion_reports(session, jobs)
    return {job.id: asdict(report) for job, report in zip(jobs, found, strict=True)}


def _image(job: Row[Any], report: dict[str, Any] | None) -> MirroredJob:
    return MirroredJob(
        job_id=job.id,
        state=job.status,
        label=f"{job.training_type}:{job.name}",
        version=job.version,
        is_first=job.mirrored_version == 0,
        attempt=job.attempt,
        node=job.node_names[0] if job.node_names else "",
        details={
            "job_id": job.id,
            "name": job.name,
            "project": job.project,
            "queue": job.queue,
            "state": job.status,
            "progress": job.progress,
            "step": job.current_step,
            "total_steps": job.total_steps,
            "epoch": job.current_epoch,
            "attempt": job.attempt,
            "node_names": list(job.node_names),
            "requested": job.requested,
            "metrics": dict(job.latest_metrics),
            "error_type": job.error_type,
            "error_message": (job.error_message or "")[:_MESSAGE_CHARACTERS] or None,
            "version": job.version,
        },
        error_stack=job.error_stack,
        elapsed_seconds=job.elapsed_seconds,
        finished_at=job.finished_at,
        report=report,
    )
