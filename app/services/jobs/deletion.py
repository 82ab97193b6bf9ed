"""Deletion of an ended job, with or without its files; refused while another job still needs them.

The intent is recorded first, with an audit entry; the remaining steps are idempotent. A coordinator, or a repeated
request, finishes an interrupted deletion.
"""

import logging

from sqlalchemy import String, cast, delete, select, update
from sqlalchemy.orm import Session

from app.database.engine import Database
from app.domain.errors import IllegalTransition, StillNeeded, TrainyardError
from app.domain.lifecycle.states import TERMINAL
from app.domain.spec.locations.paths import ReadingRules
from app.domain.spec.model import JobDocument
from app.models import Checkpoint, Job, JobDeletion, Metric
from app.models.base import utc_now
from app.security.permissions import Caller
from app.services.jobs import lookup, submission
from app.services.lifecycle import audit, transitions
from app.services.requests.control_plane import ControlPlane
from app.storage.keys import job_key
from app.storage.storage import Storage

log = logging.getLogger(__name__)

# Deleting millions of rows in one transaction would block other writers for too long.
METRICS_AT_ONCE = 10_000


def remove(plane: ControlPlane, caller: Caller, job_id: str, *, artifacts: bool) -> None:
    """Delete the job; with ``artifacts`` also its files: checkpoints, model, logs, event files.

    Raises IllegalTransition until it has ended, StillNeeded while an unfinished job reads from it.
    """
    with plane.db.write() as session:
        _begin(session, _deletable(session, plane.reading, caller, job_id), caller, artifacts=artifacts)
    _finish(plane.db, plane.storage, job_id)


def finish_begun(db: Database, storage: Storage) -> int:
    """Finish every recorded deletion, also those of dead processes; returns how many. Failed ones are retried later."""
    with db.read() as session:
        begun = session.scalars(select(JobDeletion.job_id).order_by(JobDeletion.begun_at, JobDeletion.job_id)).all()
    finished = 0
    for job_id in begun:
        try:
            _finish(db, storage, job_id)
            finished += 1
        except TrainyardError:
            log.warning("the deletion of %s could not be finished yet", job_id, exc_info=True)
    return finished


def _deletable(session: Session, reading: ReadingRules, caller: Caller, job_id: str) -> Job:
    lookup.find(session, caller, job_id)
    job = transitions.load_for_change(session, job_id)
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


def _begin(session: Session, job: Job, caller: Caller, *, artifacts: bool) -> None:
    begun = session.get(JobDeletion, job.id)
    if begun is not None and (begun.artifacts or not artifacts):
        return  # a repeated request; the first one is in the audit trail
    session.merge(JobDeletion(job_id=job.id, artifacts=artifacts, begun_at=utc_now()))
    audit.record(
        session,
        actor=caller.actor,
        action="job.delete",
        project=job.project,
        target=job.id,
        data={"name": job.name, "status": job.status, "artifacts": artifacts},
    )
    # From here on no job can start from its checkpoints, whose files are deleted next.
    session.execute(
        update(Checkpoint)
        .where(Checkpoint.job_id == job.id, Checkpoint.deleted_at.is_(None))
        .values(deleted_at=utc_now(), is_best=False)
    )


def _finish(db: Database, storage: Storage, job_id: str) -> None:
    """Delete files and rows; returns also when another process finished the deletion."""
    while True:
        with db.read() as session:
            begun, job = session.get(JobDeletion, job_id), session.get(Job, job_id)
        if begun is None or job is None:
            return
        if begun.artifacts:
            storage.delete_tree(job_key(job_id))
        _drop_metrics(db, job_id, job.metric_seq)
        with db.write() as session:
            # A concurrent request may have added the files: then repeat.
            if _drop(session, job_id, artifacts=begun.artifacts):
                return


def _reader(session: Session, reading: ReadingRules, job: Job) -> str | None:
    """An unfinished job whose model or data lies among the results of this one."""
    document = cast(Job.spec, String)
    query = select(Job.id, Job.spec).where(
        Job.project == job.project,
        Job.status.not_in(TERMINAL),
        Job.id != job.id,
        # A file URI may write any character of the id as a percent code.
        document.contains(job.id) | document.contains("%", autoescape=True),
    )
    for row in session.execute(query):
        if any(owner == job.id for owner, _ in submission.read_results(JobDocument.from_json(row.spec), reading)):
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


def _drop(session: Session, job_id: str, *, artifacts: bool) -> bool:
    """Delete the row and everything that depends on it; children lose their parent. False: the request has grown."""
    # Lock it and its children by key: a plain update would lock them in arbitrary order.
    family = select(Job.id).where((Job.id == job_id) | (Job.parent_job_id == job_id)).order_by(Job.id)
    if job_id not in session.scalars(family.with_for_update()).all():
        return True
    if session.get_one(JobDeletion, job_id).artifacts is not artifacts:
        return False
    session.execute(
        update(Job)
        .where(Job.parent_job_id == job_id)
        .values(parent_job_id=None)
        .execution_options(synchronize_session=False)
    )
    session.execute(delete(Job).where(Job.id == job_id).execution_options(synchronize_session=False))
    return True
