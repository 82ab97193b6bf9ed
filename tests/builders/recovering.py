"""Attempts that fail, and what is remembered of them."""

from typing import Any

from sqlalchemy import select

from app.database.engine import Database
from app.domain.lifecycle.outcomes import Outcome
from app.domain.lifecycle.states import JobState
from app.models import Attempt, Job, JobEvent, Node
from app.models.base import utc_now
from app.services.attempts import work_orders
from app.services.attempts.completion import end_attempt
from app.services.attempts.leases import NO_RETRY
from app.services.attempts.work_orders import Ending, WorkOrder
from tests.builders.factories import make_attempt
from tests.builders.walks import NO_WAIT, make_job, make_node, start_attempt


def training(db: Database, *, start_step: int = 0, **columns: Any) -> WorkOrder:
    """A job's first attempt, at its steps, on the node n1."""
    make_node(db)
    return trained(db, start_attempt(db, make_job(db, JobState.QUEUED, **columns)), start_step)


def trained(db: Database, work: WorkOrder, start_step: int = 0) -> WorkOrder:
    work_orders.enter_phase(db, work, JobState.TRAINING, start_step=start_step)
    return work


def failed(
    db: Database, work: WorkOrder, cause: str = "RANK_KILLED", *, end_step: int = 5, may_restart: bool = True
) -> Ending:
    """The attempt ends, under a supervisor that could run the next one, unless it may not."""
    outcome = Outcome(kind="failed", cause=cause, message="it broke", end_step=end_step, ran_seconds=1.0)
    return work_orders.finish(db, work, outcome, NO_WAIT, may_restart=may_restart)


def restarted(db: Database, work: WorkOrder, cause: str = "RANK_KILLED", *, end_step: int = 5) -> WorkOrder:
    """The next attempt under the same supervisor."""
    ending = failed(db, work, cause, end_step=end_step)
    assert ending.restart == work.attempt + 1
    return work_orders.load_work(db, work.job_id, ending.restart)


def record_of(db: Database, job_id: str, number: int) -> Attempt:
    with db.read() as session:
        return session.get_one(Attempt, (job_id, number))


def events_of(db: Database, job_id: str, kind: str) -> list[JobEvent]:
    with db.read() as session:
        query = select(JobEvent).where(JobEvent.job_id == job_id, JobEvent.type == kind)
        return list(session.scalars(query.order_by(JobEvent.seq)))


COMPLETED = Outcome(kind="completed")


def tried_on(db: Database, job_id: str, node: str, outcome: Outcome = COMPLETED, *, trained: bool = True) -> None:
    """The job's next attempt, on that node, from its claim to its end."""
    with db.write() as session:
        job = session.get_one(Job, job_id)
        make_attempt(session, job, session.get_one(Node, node), device_indices=())
        job.status = JobState.TRAINING
        if trained:
            session.get_one(Attempt, (job.id, job.attempt)).trained_at = utc_now()
        end_attempt(session, job, job.attempt, outcome, NO_RETRY, actor="test")
