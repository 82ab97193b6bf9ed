"""Reconciles a restored database before any process uses it."""

from sqlalchemy import select, update

from app.database.engine import Database
from app.domain.lifecycle.outcomes import Outcome
from app.domain.lifecycle.retry_policy import Backoff
from app.domain.lifecycle.states import HELD, TERMINAL
from app.models import Job, Lease
from app.services.attempts.work_orders import end_attempt
from app.services.lifecycle import audit, transitions

# More tokens than were issued since any backup: a supervisor of the lost period must not hold a reissued token.
FENCE_STEP = 100_000
AT_ONCE = Backoff(base_seconds=0.0, max_seconds=0.0)
MESSAGE = "the database was restored to an earlier time"


def settle(db: Database, *, actor: str) -> int:
    """End attempts recorded as running without using up retries; returns the number of their jobs. Idempotent.

    The jobs are requeued and continue from the newest recorded checkpoint.
    """
    with db.write() as session:
        session.execute(
            update(Job)
            .where(Job.status.not_in(TERMINAL))
            .values(fence=Job.fence + FENCE_STEP, mirrored_version=0)
            .execution_options(synchronize_session=False)
        )
        held = session.scalars(select(Job.id).where(Job.status.in_(HELD)).order_by(Job.id)).all()
        for job_id in held:
            job = transitions.load_for_change(session, job_id)
            node = session.scalar(select(Lease.node).where(Lease.job_id == job_id, Lease.released_at.is_(None)))
            outcome = Outcome(
                kind="requeued", cause="NODE_LOST", message=MESSAGE, end_step=job.current_step, related_task=node or ""
            )
            end_attempt(session, job, job.attempt, outcome, AT_ONCE, actor=actor)
        audit.record(session, actor=actor, action="db.restore", project=None, data={"requeued_jobs": len(held)})
    return len(held)
