"""Where a replica answers: written by the supervisor of its attempt, with its fencing token alone."""

from app.database.engine import Database
from app.domain.errors import LeaseLost, NotFound
from app.domain.lifecycle.states import HELD, JobState
from app.models import Replica
from app.models.base import utc_now
from app.services.attempts import work_orders
from app.services.attempts.work_orders import WorkOrder
from app.services.lifecycle import transitions


def record(db: Database, work: WorkOrder, *, address: str, port: int) -> None:
    """Make the job SERVING and record where its relay listens, in one transaction.

    Raises LeaseLost when the attempt is no longer the job's, and NotFound for a job that is no service's replica.
    """
    with db.write() as session:
        job = transitions.load_for_change(session, work.job_id)
        if job.fence != work.fence or job.state not in HELD:
            raise LeaseLost(f"attempt {work.attempt} of job {work.job_id} has been ended already")
        replica = session.get(Replica, work.job_id, with_for_update=True, populate_existing=True)
        if replica is None:
            raise NotFound(f"no service has the replica {work.job_id}")
        replica.attempt, replica.fence = work.attempt, work.fence
        replica.address, replica.port = address, port
        replica.answers_since = utc_now()
        work_orders.enter(session, job, work, JobState.SERVING)
