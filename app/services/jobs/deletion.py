"""Deletion of ended jobs, with or without their files; refused while another job or a service still needs them.

The intent is recorded first, with an audit entry; the remaining steps are idempotent. A coordinator, or a repeated
request, finishes an interrupted deletion.
"""

import logging
import time
from collections.abc import Sequence
from typing import NamedTuple

from sqlalchemy import ColumnElement, Select, String, cast, delete, select, update
from sqlalchemy.orm import Session

from app.database.engine import Database
from app.domain.batches.states import ENDED
from app.domain.errors import IllegalTransition, StillNeeded, TrainyardError
from app.domain.lifecycle.states import TERMINAL
from app.domain.spec.locations.paths import ReadingRules
from app.domain.spec.model import JobDocument
from app.models import Batch, BatchJob, Checkpoint, File, Job, JobDeletion, Metric, Service
from app.models.base import utc_now
from app.security.permissions import Caller
from app.services.jobs import lookup, submission
from app.services.lifecycle import audit, transitions
from app.services.requests.control_plane import ControlPlane
from app.storage.object_keys import job_key
from app.storage.storage import Storage

log = logging.getLogger(__name__)

# Deleting millions of rows in one transaction would block other writers for too long.
METRICS_AT_ONCE = 10_000
# A stopping coordinator waits for the jobs that it is deleting; the others are deleted in later rounds.
ROUND_SECONDS = 20.0


class _EndedJob(NamedTuple):
    id: str
    project: str
    name: str
    status: str

    @classmethod
    def of(cls, job: Job) -> "_EndedJob":
        return cls(job.id, job.project, job.name, job.status)


def remove(plane: ControlPlane, caller: Caller, job_id: str, *, artifacts: bool) -> None:
    """Delete the job; with ``artifacts`` also its files: checkpoints, model, logs, event files.

    Raises IllegalTransition until it has ended, StillNeeded while an unfinished job reads from it, a service serves
    what it has made, or a batch needs its answers.
    """
    with plane.db.write() as session:
        _begin(session, _deletable(session, plane.reading, caller, job_id), caller, artifacts=artifacts)
    _finish(plane.db, plane.storage, job_id)


def begin_for_sweep(session: Session, reading: ReadingRules, caller: Caller, sweep_id: str) -> Sequence[str]:
    """Record the deletion of all jobs of a sweep, with their files, in the caller's transaction; `finish` follows it.

    Returns their ids. Raises IllegalTransition while one has not ended, StillNeeded while another job reads from one.
    A constant number of queries: there may be thousands of them.
    """
    query = select(Job.id, Job.project, Job.name, Job.status).where(Job.sweep_id == sweep_id)
    jobs = [_EndedJob(*row) for row in session.execute(query.order_by(Job.id).with_for_update())]
    for job in jobs:
        if job.status not in TERMINAL:
            raise IllegalTransition(f"job {job.id} of the sweep is {job.status}; cancel it first")
    of_it = select(Job.id).where(Job.sweep_id == sweep_id)
    _refuse_while_needed(session, reading, jobs, of_it)
    begun = {each.job_id: each for each in session.scalars(select(JobDeletion).where(JobDeletion.job_id.in_(of_it)))}
    for job in jobs:
        if job.id in begun:
            begun[job.id].artifacts = True
        else:
            session.add(JobDeletion(job_id=job.id, artifacts=True, begun_at=utc_now()))
            _record(session, caller, job, artifacts=True)
    _retire_checkpoints(session, Checkpoint.job_id.in_(of_it))
    return [job.id for job in jobs]


def finish(plane: ControlPlane, job_ids: Sequence[str], *, seconds: float) -> int:
    """Finish recorded deletions for so long; returns how many are left, which a coordinator finishes."""
    return len(job_ids) - _finish_each(plane.db, plane.storage, job_ids, seconds=seconds)


def finish_begun(db: Database, storage: Storage) -> int:
    """Finish recorded deletions, also those of dead processes; returns how many. The others are for later rounds."""
    with db.query() as connection:
        begun = connection.scalars(select(JobDeletion.job_id).order_by(JobDeletion.begun_at, JobDeletion.job_id)).all()
    return _finish_each(db, storage, begun, seconds=ROUND_SECONDS)


def _finish_each(db: Database, storage: Storage, job_ids: Sequence[str], *, seconds: float) -> int:
    ends_at, finished = time.monotonic() + seconds, 0
    for job_id in job_ids:
        if time.monotonic() >= ends_at:
            break
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
    _refuse_while_needed(session, reading, [_EndedJob.of(job)], [job_id])
    return job


def _refuse_while_needed(
    session: Session, reading: ReadingRules, jobs: Sequence[_EndedJob], of_them: Sequence[str] | Select[str]
) -> None:
    """``jobs``: all of one project; ``of_them``: their ids, or a query for those."""
    # Locked before the pins are read: a submission that pins one at this moment is either seen or finds none.
    of_jobs = Checkpoint.job_id.in_(of_them)
    session.execute(select(Checkpoint.id).where(of_jobs).order_by(Checkpoint.id).with_for_update()).all()
    pinned = select(Job.id, Checkpoint.job_id).join(Checkpoint, Checkpoint.id == Job.resume_checkpoint_id)
    pin = session.execute(pinned.where(of_jobs, Job.status.not_in(TERMINAL)).limit(1)).first()
    found = (pin[0], pin[1]) if pin is not None else _reader(session, reading, jobs)
    if found is not None:
        reader, read = found
        raise StillNeeded(
            f"job {reader} has not ended and reads from {read}; wait for its end or cancel it, then delete this one"
        )
    _refuse_while_served(session, reading, jobs)
    _refuse_while_batched(session, of_them)


def _refuse_while_batched(session: Session, of_them: Sequence[str] | Select[str]) -> None:
    """What a job has answered is in its shards until its batch has ended."""
    query = select(BatchJob.job_id, BatchJob.batch_id).join(Batch, Batch.id == BatchJob.batch_id)
    found = session.execute(query.where(BatchJob.job_id.in_(of_them), Batch.status.not_in(ENDED)).limit(1)).first()
    if found is not None:
        raise StillNeeded(
            f"job {found.job_id} answers requests of {found.batch_id}, which has not ended; wait for its end or cancel "
            f"it (POST /v1/batches/{found.batch_id}/cancel)"
        )


def _refuse_while_served(session: Session, reading: ReadingRules, jobs: Sequence[_EndedJob]) -> None:
    """Also a service without replicas reads its model again, at its next request or when it is resumed."""
    ids = {job.id for job in jobs}
    live = select(Service.name, Service.base).where(
        Service.project.in_({job.project for job in jobs}), Service.ended_at.is_(None)
    )
    for service in session.execute(live.order_by(Service.name)):
        for owner, _ in submission.read_results(JobDocument.from_json(service.base), reading.remembering()):
            if owner in ids:
                raise StillNeeded(
                    f"the service {service.name} serves what job {owner} has made; delete the service first (DELETE "
                    f"/v1/services/{service.name}), or give it another model (PATCH /v1/services/{service.name})"
                )


def _begin(session: Session, job: Job, caller: Caller, *, artifacts: bool) -> None:
    begun = session.get(JobDeletion, job.id)
    if begun is not None and (begun.artifacts or not artifacts):
        return  # a repeated request; the first one is in the audit trail
    session.merge(JobDeletion(job_id=job.id, artifacts=artifacts, begun_at=utc_now()))
    _record(session, caller, _EndedJob.of(job), artifacts=artifacts)
    _retire_checkpoints(session, Checkpoint.job_id == job.id)


def _record(session: Session, caller: Caller, job: _EndedJob, *, artifacts: bool) -> None:
    audit.record(
        session,
        actor=caller.actor,
        action="job.delete",
        project=job.project,
        target=job.id,
        data={"name": job.name, "status": job.status, "artifacts": artifacts},
    )


def _retire_checkpoints(session: Session, of_them: ColumnElement[bool]) -> None:
    """From here on no job can start from these checkpoints, whose files are deleted next."""
    session.execute(
        update(Checkpoint)
        .where(of_them, Checkpoint.deleted_at.is_(None))
        .values(deleted_at=utc_now(), is_best=False)
        .execution_options(synchronize_session=False)
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


def _reader(session: Session, reading: ReadingRules, jobs: Sequence[_EndedJob]) -> tuple[str, str] | None:
    """An unfinished job whose model or data lies among the results of one of these, and that one."""
    ids = {job.id for job in jobs}
    if not jobs:
        return None
    document = cast(Job.spec, String)
    query = select(Job.id, Job.spec).where(
        Job.project == jobs[0].project,
        Job.status.not_in(TERMINAL),
        # A file URI may write any character of an id as a percent code.
        document.contains(jobs[0].id if len(jobs) == 1 else "job-") | document.contains("%", autoescape=True),
    )
    for row in session.execute(query):
        for owner, _ in submission.read_results(JobDocument.from_json(row.spec), reading.remembering()):
            if owner in ids:
                return str(row.id), owner
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
    # Their content is deleted next, by what deletes expired files.
    session.execute(
        update(File)
        .where(File.job_id == job_id)
        .values(job_id=None, expires_at=utc_now())
        .execution_options(synchronize_session=False)
    )
    session.execute(delete(Job).where(Job.id == job_id).execution_options(synchronize_session=False))
    return True
