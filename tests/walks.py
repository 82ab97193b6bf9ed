"""Steps of a job's way through the services, for tests that start in the middle of it."""

from typing import Any

from sqlalchemy import select

from app.domain.job_state import JobState
from app.domain.retry import Backoff
from app.extensions import Database
from app.models import Job, JobEvent
from app.services import attempts, checkpoints, leases, scheduling
from app.services.attempts import Work
from app.services.checkpoints import NewCheckpoint, Recorded
from tests import factories

NO_WAIT = Backoff(base_seconds=0.0, max_seconds=0.0)


def make_job(db: Database, state: JobState = JobState.PENDING, **columns: Any) -> str:
    with db.write() as session:
        return factories.make_job(session, state=state, **columns).id


def make_node(db: Database, **columns: Any) -> None:
    with db.write() as session:
        factories.make_node(session, "n1", **columns)


def start_attempt(db: Database, job_id: str, *, node: str = "n1") -> Work:
    """Take a queued job to PREPARING on the node."""
    dispatched = {d.job_id: d for d in scheduling.plan_once(db)}[job_id]
    claim = leases.claim(db, job_id=job_id, attempt=dispatched.attempt, node=node, boot_id="boot")
    assert claim is not None
    return attempts.load_work(db, job_id, dispatched.attempt)


def save(db: Database, work: Work, step: int, **metrics: float) -> Recorded:
    new = NewCheckpoint(
        checkpoint_id=checkpoints.new_checkpoint_id(), step=step, epoch=1.0, world_size=1, threads_per_rank=1,
        size_bytes=10, sha256="0" * 64, uri=f"jobs/{work.job_id}/checkpoints/{step}", metrics=metrics,
    )  # fmt: skip
    return checkpoints.record(db, job_id=work.job_id, attempt=work.attempt, fence=work.fence, actor="test", new=new)


def job_of(db: Database, job_id: str) -> Job:
    with db.read() as session:
        return session.get_one(Job, job_id)


def statuses(db: Database, job_id: str) -> list[str | None]:
    with db.read() as session:
        query = select(JobEvent.to_status).where(JobEvent.job_id == job_id, JobEvent.to_status.is_not(None))
        return list(session.scalars(query.order_by(JobEvent.seq)))
