"""Finding one job by its id or by the alias that a vocabulary gave it."""

from sqlalchemy import select
from sqlalchemy.orm import Session

from app.domain.errors import NotFound
from app.domain.ids import JOB_ID
from app.models import Job
from app.security.permissions import Caller


def find(session: Session, caller: Caller, job_id: str) -> Job:
    """The job; raises the same NotFound for one that does not exist and one that is not visible to the caller."""
    job = session.get(Job, job_id) if JOB_ID.fullmatch(job_id) else None
    missing = f"no job {job_id[:64]}"
    if job is None:
        raise NotFound(missing)
    caller.require_sight(job.project, missing)
    return job


def current(session: Session, job_id: str) -> Job | None:
    """The job as it is now, for a caller that has found it before; None once it is deleted."""
    return session.get(Job, job_id)


def find_by_alias(session: Session, caller: Caller, alias: str, *, missing: str) -> Job:
    """The job with this name in a dialect; raises NotFound with the message `missing` if the caller sees none."""
    job = session.scalar(select(Job).where(Job.alias == alias))
    if job is None:
        raise NotFound(missing)
    caller.require_sight(job.project, missing)
    return job
