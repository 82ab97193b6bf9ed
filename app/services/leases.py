"""Leases: claimed by one conditional UPDATE, renewed by raising a counter, taken away when it stands still."""

from dataclasses import dataclass

from sqlalchemy import select, update

from app.domain.errors import LeaseLost
from app.domain.job_state import JobState
from app.domain.retry import Backoff
from app.extensions import Database
from app.models import Attempt, Job, Lease
from app.models.base import utc_now
from app.services import lifecycle
from app.services.attempts import Outcome, end_attempt

NO_RETRY = Backoff(base_seconds=0.0, max_seconds=0.0)


@dataclass(frozen=True, kw_only=True)
class Claim:
    """The right to start one attempt."""

    job_id: str
    attempt: int
    fence: int
    lease_id: str
    node: str


@dataclass(frozen=True, kw_only=True)
class Wishes:
    """What people asked of a running job, as every renewal reads it."""

    requested: str | None  # pause | cancel | requeue
    pause_saves: bool
    checkpoint_requests: int


@dataclass(frozen=True, kw_only=True)
class LiveLease:
    """A lease as reaper and node worker see it; ``counter`` 0 means nobody claimed it yet."""

    lease_id: str
    job_id: str
    attempt: int
    fence: int
    node: str
    counter: int
    supervisor_pid: int | None
    supervisor_started: int | None
    boot_id: str | None


def claim(db: Database, *, job_id: str, attempt: int, node: str, boot_id: str) -> Claim | None:
    """Take up a dispatched attempt: None when it was claimed already, cancelled, or never meant for this node."""
    with db.write() as session:
        # Job before lease, as everywhere: two orders of locking would let PostgreSQL find deadlocks.
        job = lifecycle.load_for_change(session, job_id)
        row = session.execute(
            update(Lease)
            .where(
                Lease.job_id == job_id, Lease.attempt == attempt, Lease.node == node,
                Lease.counter == 0, Lease.released_at.is_(None),
            )
            .values(counter=1, claimed_at=utc_now(), renewed_at=utc_now(), boot_id=boot_id)
            .returning(Lease.id, Lease.fence)
        ).first()  # fmt: skip
        if row is None:
            return None
        if job.requested == "cancel":
            end_attempt(session, job, attempt, Outcome(kind="cancelled"), NO_RETRY, actor=f"node@{node}")
            return None
        lifecycle.transition(
            session, job, JobState.PREPARING, actor=f"node@{node}", message=f"attempt {attempt} on {node}",
            fence=row.fence,
        )  # fmt: skip
        session.get_one(Attempt, (job_id, attempt)).started_at = utc_now()
        return Claim(job_id=job_id, attempt=attempt, fence=row.fence, lease_id=row.id, node=node)


def register_supervisor(db: Database, lease_id: str, *, pid: int, started: int, boot_id: str) -> None:
    """Write down how the supervisor can be recognised later (pid, start time in clock ticks, boot)."""
    with db.write() as session:
        session.execute(
            update(Lease)
            .where(Lease.id == lease_id, Lease.released_at.is_(None))
            .values(supervisor_pid=pid, supervisor_started=started, boot_id=boot_id)
        )


def renew(db: Database, *, lease_id: str, fence: int) -> Wishes:
    """Raise the counter and read the wishes. Raises LeaseLost when the lease is no longer live."""
    with db.write() as session:
        job_id = session.execute(
            update(Lease)
            .where(Lease.id == lease_id, Lease.fence == fence, Lease.released_at.is_(None))
            .values(counter=Lease.counter + 1, renewed_at=utc_now())
            .returning(Lease.job_id)
        ).scalar_one_or_none()
        if job_id is None:
            raise LeaseLost(f"lease {lease_id} was taken away")
        row = session.execute(
            select(Job.requested, Job.pause_saves, Job.checkpoint_requests, Job.fence).where(Job.id == job_id)
        ).one()
        if row.fence != fence:
            raise LeaseLost(f"lease {lease_id}: the job's token is {row.fence}, not {fence}")
        return Wishes(requested=row.requested, pause_saves=row.pause_saves, checkpoint_requests=row.checkpoint_requests)


def live(db: Database, *, node: str | None = None) -> list[LiveLease]:
    """All live leases, or those of one node."""
    query = select(Lease).where(Lease.released_at.is_(None))
    if node is not None:
        query = query.where(Lease.node == node)
    with db.read() as session:
        return [
            LiveLease(
                lease_id=row.id, job_id=row.job_id, attempt=row.attempt, fence=row.fence, node=row.node,
                counter=row.counter, supervisor_pid=row.supervisor_pid, supervisor_started=row.supervisor_started,
                boot_id=row.boot_id,
            )
            for row in session.scalars(query.order_by(Lease.id))
        ]  # fmt: skip


def take_away(db: Database, lease: LiveLease, *, cause: str, message: str, actor: str, backoff: Backoff) -> bool:
    """End the attempt of a lease whose counter still is the seen one; False when the holder was faster.

    The caller has seen the counter stand still for the TTL, or knows that no process of the attempt is left.
    """
    with db.write() as session:
        job = lifecycle.load_for_change(session, lease.job_id)
        row = session.get(Lease, lease.lease_id, with_for_update=True, populate_existing=True)
        if row is None or row.released_at is not None or row.counter != lease.counter:
            return False
        ran = 0.0
        if row.claimed_at is not None and row.renewed_at is not None:
            ran = max(0.0, (row.renewed_at - row.claimed_at).total_seconds())
        attempt = session.get_one(Attempt, (lease.job_id, lease.attempt))
        attempt.detect_seconds = (
            round((utc_now() - row.renewed_at).total_seconds(), 3) if row.renewed_at is not None else None
        )
        outcome = Outcome(
            # An attempt nobody took up costs the job nothing; it goes back without using its retries.
            kind="failed" if lease.counter else "requeued",
            cause=cause, message=message, end_step=job.current_step, ran_seconds=ran, related_task=lease.node,
        )  # fmt: skip
        end_attempt(session, job, lease.attempt, outcome, backoff, actor=actor)
        return True
