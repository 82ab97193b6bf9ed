"""Steps of a job's way through the services, for tests that start in the middle of it."""

from typing import Any

from sqlalchemy import select

from app.database.engine import Database
from app.domain.lifecycle.outcomes import Outcome
from app.domain.lifecycle.retry_policy import Backoff
from app.domain.lifecycle.states import JobState
from app.models import Attempt, Job, JobEvent, Lease
from app.services.attempts import checkpoints, leases, work_orders
from app.services.attempts.checkpoints import NewCheckpoint, RecordedCheckpoint
from app.services.attempts.work_orders import WorkOrder
from app.services.scheduling import planner
from tests.builders import factories

NO_WAIT = Backoff(base_seconds=0.0, max_seconds=0.0)
ON_TWO_NODES = factories.make_document(resource_config={"gpu_count": 2, "node_count": 2, "device_type": "cpu"})
# How a node's part of such a job ends when another one's has broken.
BROKEN = Outcome(
    kind="failed", cause="RANK_KILLED", message="lost the others", end_step=4, exit_code=1, is_consequence=True
)


def make_job(db: Database, state: JobState = JobState.PENDING, **columns: Any) -> str:
    with db.write() as session:
        return factories.make_job(session, state=state, **columns).id


def make_node(db: Database, name: str = "n1", **columns: Any) -> None:
    with db.write() as session:
        factories.make_node(session, name, **columns)


def start_attempt(db: Database, job_id: str, *, node: str = "n1") -> WorkOrder:
    """Take a queued job to PREPARING on the node."""
    dispatched = {d.job_id: d for d in planner.plan_once(db)}[job_id]
    claim = leases.claim(db, job_id=job_id, attempt=dispatched.attempt, node=node, boot_id="boot")
    assert claim is not None
    return work_orders.load_work(db, job_id, dispatched.attempt)


def make_gang(db: Database) -> str:
    """A queued job for two nodes, n1 and n2, which are there."""
    for name in ("n1", "n2"):
        make_node(db, name)
    return make_job(db, state=JobState.QUEUED, document=ON_TWO_NODES)


def attempt_of(db: Database, job_id: str, number: int = 1) -> Attempt:
    with db.read() as session:
        return session.get_one(Attempt, (job_id, number))


def live_nodes(db: Database) -> list[str]:
    """Of all leases that are held."""
    with db.read() as session:
        return sorted(session.scalars(select(Lease.node).where(Lease.released_at.is_(None))))


def start_gang(db: Database, job_id: str, *names: str) -> list[WorkOrder]:
    """Take a queued job on several nodes to PREPARING on each of them."""
    attempt = {d.job_id: d.attempt for d in planner.plan_once(db)}[job_id]
    for name in names:
        assert leases.claim(db, job_id=job_id, attempt=attempt, node=name, boot_id="boot") is not None
    return [work_orders.load_work(db, job_id, attempt, node=name) for name in names]


def save(db: Database, work: WorkOrder, step: int, **metrics: float) -> RecordedCheckpoint:
    new = NewCheckpoint(
        checkpoint_id=checkpoints.new_checkpoint_id(),
        step=step,
        epoch=1.0,
        world_size=1,
        threads_per_rank=1,
        size_bytes=10,
        sha256="0" * 64,
        uri=f"jobs/{work.job_id}/checkpoints/{step}",
        metrics=metrics,
    )
    return checkpoints.record(db, job_id=work.job_id, attempt=work.attempt, fence=work.fence, actor="test", new=new)


def job_of(db: Database, job_id: str) -> Job:
    with db.read() as session:
        return session.get_one(Job, job_id)


def statuses(db: Database, job_id: str) -> list[str | None]:
    with db.read() as session:
        query = select(JobEvent.to_status).where(JobEvent.job_id == job_id, JobEvent.to_status.is_not(None))
        return list(session.scalars(query.order_by(JobEvent.seq)))
