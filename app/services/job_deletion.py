"""Deleting a job that has ended, with or without its files; what another job still needs is never taken away.

In steps, each safe to do again: a deletion that was cut off is ended by asking for it once more.
"""

from sqlalchemy import String, cast, delete, select, update
from sqlalchemy.orm import Session

from app.domain.errors import IllegalTransition, StillNeeded
from app.domain.job_state import TERMINAL
from app.domain.locations import ReadingRules
from app.extensions import Database
from app.models import Checkpoint, Job, Metric
from app.models.base import utc_now
from app.security.permissions import Caller
from app.services import audit, jobs, lifecycle
from app.services.control_plane import ControlPlane
from app.storage.keys import job_key

# Millions of rows in one transaction would keep others from writing for too long.
METRICS_AT_ONCE = 10_000


def remove(plane: ControlPlane, caller: Caller, job_id: str, *, artifacts: bool) -> None:
    """Delete the job; with ``artifacts`` also its files: checkpoints, model, logs, event files.

    Raises IllegalTransition until it has ended, StillNeeded while a living job reads from it.
    """
    with plane.db.write() as session:
        job = _deletable(session, plane.reading, caller, job_id)
        newest_point = job.metric_seq
        # From here on nobody can start from its checkpoints, whose files go next.
        session.execute(
            update(Checkpoint)
            .where(Checkpoint.job_id == job_id, Checkpoint.deleted_at.is_(None))
            .values(deleted_at=utc_now(), is_best=False)
        )
    if artifacts:
        plane.storage.delete_tree(job_key(job_id))
    _drop_metrics(plane.db, job_id, newest_point)
    with plane.db.write() as session:
        gone = session.get(Job, job_id, with_for_update=True)
        if gone is None:
            return  # a second request was faster
        _drop(session, gone, caller, artifacts=artifacts)


def _deletable(session: Session, reading: ReadingRules, caller: Caller, job_id: str) -> Job:
    jobs.find(session, caller, job_id)
    job = lifecycle.load_for_change(session, job_id)
    if job.state not in TERMINAL:
        raise IllegalTransition(
            f"job {job_id} is {job.status} and cannot be deleted; only a job that has ended can: cancel it first"
        )
    # Locked before the pins are read: a submission that pins one at this moment is either seen or finds none.
    ids = session.scalars(select(Checkpoint.id).where(Checkpoint.job_id == job_id).with_for_update()).all()
    living = Job.status.not_in(TERMINAL)
    user = session.scalar(select(Job.id).where(Job.resume_checkpoint_id.in_(ids), living).limit(1))
    user = user or _reader(session, reading, job)
    if user is not None:
        raise StillNeeded(
            f"job {user} has not ended and reads from {job_id}; wait for its end or cancel it, then delete this one"
        )
    return job


def _reader(session: Session, reading: ReadingRules, job: Job) -> str | None:
    """A living job whose model or data lies among the results of this one."""
    document = cast(Job.spec, String)
    query = select(Job.id, Job.spec).where(
        Job.project == job.project, Job.status.not_in(TERMINAL), Job.id != job.id,
        # A file URI may write any character of the id as a percent code.
        document.contains(job.id) | document.contains("%", autoescape=True),
    )  # fmt: skip
    for row in session.execute(query):
        if any(owner == job.id for owner, _ in jobs.read_results(row.spec, reading)):
            return str(row.id)
    return None


def _drop_metrics(db: Database, job_id: str, newest: int) -> None:
    for first in range(0, newest, METRICS_AT_ONCE):
        with db.write() as session:
            session.execute(
                delete(Metric)
                .where(Metric.job_id == job_id, Metric.seq > first, Metric.seq <= first + METRICS_AT_ONCE)
                .execution_options(synchronize_session=False)
            )


def _drop(session: Session, job: Job, caller: Caller, *, artifacts: bool) -> None:
    """The row, and with it all that hangs on it; its children have no parent then."""
    session.execute(
        update(Job)
        .where(Job.parent_job_id == job.id)
        .values(parent_job_id=None)
        .execution_options(synchronize_session=False)
    )
    audit.record(
        session, actor=caller.actor, action="job.delete", project=job.project, target=job.id,
        data={"name": job.name, "status": job.status, "artifacts": artifacts},
    )  # fmt: skip
    session.execute(delete(Job).where(Job.id == job.id).execution_options(synchronize_session=False))
