"""Leases: claimed by one conditional UPDATE, renewed by raising a counter, revoked when the counter stops rising."""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, NamedTuple, cast

from sqlalchemy import BindParameter, Row, Table, bindparam, select, tuple_, update
from sqlalchemy.exc import OperationalError
from sqlalchemy.orm import Session, load_only

from app.database.engine import Database, is_deadlock
from app.database.transient_errors import is_transient
from app.domain.errors import Conflict, LeaseLost, NotFound, StaleJob, TrainyardError
from app.domain.lifecycle.outcomes import Outcome, OutcomeKind, Preemption
from app.domain.lifecycle.retry_policy import Backoff
from app.domain.lifecycle.states import JobState
from app.models import Attempt, Job, Lease
from app.models.base import database_now, utc_now
from app.services.attempts import outcome_errors
from app.services.attempts.gang_parts import end_part
from app.services.lifecycle import transitions
from app.services.lifecycle.transitions import Step
from app.services.nodes import stuck_devices

log = logging.getLogger(__name__)

# Longer than coordinators wait before they revoke a lease, and than clocks of machines differ.
UNCONFIRMED_AFTER = timedelta(minutes=1)
NO_RETRY = Backoff(base_seconds=0.0, max_seconds=0.0)
# Outcome of an attempt whose job has a pending control request when it is claimed.
_STOPPED: dict[str, OutcomeKind] = {
    "cancel": "cancelled",
    "pause": "paused",
    "requeue": "requeued",
    "preempt": "preempted",
    "drain": "cancelled",  # a replica that never answered has nothing to finish
}
_OF_JOB: BindParameter[str] = bindparam("of_job")
_OF_ATTEMPT: BindParameter[int] = bindparam("of_attempt")
# Statements of a claim, built once, with only the job columns that it needs.
_LOCK = (
    select(Job)
    .where(Job.id == _OF_JOB)
    .options(load_only(*transitions.TRANSITION_COLUMNS, Job.requested))
    .with_for_update()
    .execution_options(populate_existing=True)
)
_TAKE = (
    update(cast(Table, Lease.__table__))
    .where(
        Lease.job_id == _OF_JOB,
        Lease.attempt == _OF_ATTEMPT,
        Lease.node == bindparam("of_node"),
        Lease.counter == 0,
        Lease.released_at.is_(None),
    )
    .values(counter=1, claimed_at=bindparam("now"), renewed_at=bindparam("now"), boot_id=bindparam("new_boot"))
    .returning(Lease.id, Lease.fence)
)
_READ_ATTEMPT = select(
    Attempt.started_at, Attempt.ending, stuck_devices.given_to(_OF_JOB, _OF_ATTEMPT).label("has_stuck_device")
).where(Attempt.job_id == _OF_JOB, Attempt.number == _OF_ATTEMPT)
_START = (
    update(cast(Table, Attempt.__table__))
    .where(Attempt.job_id == _OF_JOB, Attempt.number == _OF_ATTEMPT)
    .values(started_at=bindparam("now"))
)
# The same for several attempts; locks are taken in the order of keys, as everywhere.
_MANY: BindParameter[Sequence[tuple[str, int]]] = bindparam("many", expanding=True)
_LOCK_MANY = (
    select(Job)
    .where(Job.id.in_(bindparam("jobs", expanding=True)))
    .order_by(Job.id)
    .options(load_only(*transitions.TRANSITION_COLUMNS, Job.requested))
    .with_for_update()
    .execution_options(populate_existing=True)
)
_WAITING = (
    select(
        Lease.id,
        Lease.job_id,
        Lease.attempt,
        Lease.fence,
        Attempt.started_at,
        Attempt.ending,
        stuck_devices.given_to(Lease.job_id, Lease.attempt).label("has_stuck_device"),
    )
    .join(Attempt, (Attempt.job_id == Lease.job_id) & (Attempt.number == Lease.attempt))
    .where(
        tuple_(Lease.job_id, Lease.attempt).in_(_MANY),
        Lease.node == bindparam("of_node"),
        Lease.counter == 0,
        Lease.released_at.is_(None),
    )
)
_TAKE_MANY = (
    update(cast(Table, Lease.__table__))
    .where(Lease.id.in_(bindparam("leases", expanding=True)), Lease.counter == 0, Lease.released_at.is_(None))
    .values(counter=1, claimed_at=bindparam("now"), renewed_at=bindparam("now"), boot_id=bindparam("new_boot"))
)
_ON_PREEMPTION = Job.spec["scheduling_config", "on_preemption"].as_string()
_REQUESTS = select(
    Job.requested,
    Job.pause_saves,
    Job.pause_force,
    Job.checkpoint_requests,
    Job.fence,
    Job.current_step,
    (Job.interactive_attempt == Job.attempt).label("interactive"),
    (Job.release_attempt == Job.attempt).label("release"),
    _ON_PREEMPTION.label("preemption"),
    Attempt.ending,
).join(Attempt, (Attempt.job_id == Job.id) & (Attempt.number == Job.attempt))


@dataclass(frozen=True, kw_only=True)
class Claim:
    """The right to start one attempt."""

    job_id: str
    attempt: int
    fence: int
    lease_id: str
    node: str


@dataclass(frozen=True, kw_only=True)
class ControlRequests:
    """Control requests for a running job, read with every renewal."""

    requested: str | None  # pause | cancel | requeue | preempt
    pause_saves: bool
    checkpoint_requests: int
    pause_force: bool = False  # stop even if the save fails
    preemption: Preemption = "terminate"  # policy after a preemption
    part_ended: str = ""  # node of the gang whose part has ended, so that this one must end, too
    interactive: bool = False  # people ask to reach the sandbox of this attempt
    release: bool = False  # its sandbox, which stays after a failure, may go
    current_step: int = 0  # of the job, which only the first part of a gang knows by itself


class LiveLease(NamedTuple):
    """A lease as reaper and node worker see it; ``counter`` 0 means not claimed yet."""

    lease_id: str
    job_id: str
    attempt: int
    fence: int
    node: str
    part: int
    counter: int
    supervisor_pid: int | None
    supervisor_started: int | None
    boot_id: str | None


_LEASE_COLUMNS = (
    Lease.id,
    Lease.job_id,
    Lease.attempt,
    Lease.fence,
    Lease.node,
    Lease.part,
    Lease.counter,
    Lease.supervisor_pid,
    Lease.supervisor_started,
    Lease.boot_id,
)


def claim(db: Database, *, job_id: str, attempt: int, node: str, boot_id: str) -> Claim | None:
    """Claim a dispatched attempt; None when it was claimed already, was cancelled, or belongs to another node.

    Also None when one of its devices is out of service by now; the job is requeued then.
    """
    which, now = {"of_job": job_id, "of_attempt": attempt}, utc_now()
    with db.write() as session:
        # Job before lease, as everywhere: a second lock order would cause deadlocks.
        job = session.scalars(_LOCK, which).one_or_none()
        if job is None:
            raise NotFound(f"no job {job_id}")
        connection = session.connection()
        taken = connection.execute(_TAKE, {**which, "of_node": node, "now": now, "new_boot": boot_id}).one_or_none()
        if taken is None:
            return None
        seen = connection.execute(_READ_ATTEMPT, which).one()  # after the lock, to see what its previous holders wrote
        stopped = _outcome_if_stopped(job, seen)
        if stopped is not None:
            job, lease = transitions.load_for_change(session, job_id), session.get_one(Lease, taken.id)
            end_part(session, job, lease, stopped, NO_RETRY, actor=f"node@{node}")
            return None
        if seen.started_at is None:  # the first node of a gang
            transitions.transition(
                session,
                job,
                JobState.PREPARING,
                actor=f"node@{node}",
                message=f"attempt {attempt} on {node}",
                fence=taken.fence,
            )
            connection.execute(_START, {**which, "now": now})
        return Claim(job_id=job_id, attempt=attempt, fence=taken.fence, lease_id=taken.id, node=node)


def claim_together(
    db: Database, attempts: Sequence[tuple[str, int]], *, node: str, boot_id: str
) -> tuple[list[Claim], list[tuple[str, int]]]:
    """Claim dispatched attempts in one transaction; returns the claims, and the attempts that need a single `claim`.

    The latter have a pending control request, a deleted job and the like; on a concurrent change all attempts are
    returned there, so that one attempt can't block the others.
    """
    try:
        with db.write() as session:
            return _claim_together(session, attempts, node, boot_id)
    except OperationalError as error:
        if not is_deadlock(error):
            raise
        log.warning("claims were aborted by a deadlock and are retried one by one: %s", error)
    except Conflict as error:
        log.info("claims are retried one by one: %s", error)
    return [], list(attempts)


def _claim_together(
    session: Session, attempts: Sequence[tuple[str, int]], node: str, boot_id: str
) -> tuple[list[Claim], list[tuple[str, int]]]:
    jobs = {job.id: job for job in session.scalars(_LOCK_MANY, {"jobs": sorted({job_id for job_id, _ in attempts})})}
    connection, now = session.connection(), utc_now()
    # After the locks, as in `claim`; attempts that no longer wait for this node are dropped.
    waiting = connection.execute(_WAITING, {"many": list(attempts), "of_node": node}).all()
    plain = sorted(
        (
            row
            for row in waiting
            if _outcome_if_stopped(jobs[row.job_id], row) is None and jobs[row.job_id].fence == row.fence
        ),
        key=lambda row: (row.job_id, row.attempt),
    )
    others = {(row.job_id, row.attempt) for row in waiting} - {(row.job_id, row.attempt) for row in plain}
    others |= {(job_id, attempt) for job_id, attempt in attempts if job_id not in jobs}
    if plain:
        taken = connection.execute(_TAKE_MANY, {"leases": [row.id for row in plain], "now": now, "new_boot": boot_id})
        if taken.rowcount != len(plain):
            raise StaleJob("one of several leases was claimed by another process since it was read; read again")
    first = [row for row in plain if row.started_at is None]  # the first nodes of gangs
    if first:
        steps = [Step(job=jobs[row.job_id], message=f"attempt {row.attempt} on {node}", changes={}) for row in first]
        transitions.transition_all(session, steps, JobState.PREPARING, actor=f"node@{node}")
        connection.execute(_START, [{"of_job": row.job_id, "of_attempt": row.attempt, "now": now} for row in first])
    claims = [
        Claim(job_id=row.job_id, attempt=row.attempt, fence=row.fence, lease_id=row.id, node=node) for row in plain
    ]
    return claims, sorted(others)


def _outcome_if_stopped(job: Job, seen: Row[Any]) -> Outcome | None:
    """The outcome of an attempt that must not start; None if it may start."""
    if seen.has_stuck_device:
        return Outcome(kind="requeued", message="an unkillable process holds one of its devices")
    if job.requested is not None:
        return Outcome(kind=_STOPPED[job.requested], message="stopped before its node claimed it")
    if seen.ending is not None:
        return Outcome(kind="requeued", message="its part on another node has ended", is_consequence=True)
    return None


def register_supervisor(db: Database, lease_id: str, *, pid: int, started: int, boot_id: str) -> None:
    """Record the supervisor's identity (pid, start time in clock ticks, boot id)."""
    with db.write() as session:
        session.execute(
            update(Lease)
            .where(Lease.id == lease_id, Lease.released_at.is_(None))
            .values(supervisor_pid=pid, supervisor_started=started, boot_id=boot_id)
        )


def renew(db: Database, *, lease_id: str, fence: int, ran_seconds: float) -> ControlRequests:
    """Raise the counter and read the control requests. Raises LeaseLost when the lease is no longer live.

    ``ran_seconds`` is the attempt's runtime by the monotonic clock.
    """
    with db.write() as session:
        job_id = session.execute(
            update(Lease)
            .where(Lease.id == lease_id, Lease.fence == fence, Lease.released_at.is_(None))
            .values(counter=Lease.counter + 1, renewed_at=utc_now(), ran_seconds=ran_seconds)
            .returning(Lease.job_id)
        ).scalar_one_or_none()
        if job_id is None:
            raise LeaseLost(f"lease {lease_id} was revoked")
        row = session.execute(_REQUESTS.where(Job.id == job_id)).one()
        if row.fence != fence:
            raise LeaseLost(f"lease {lease_id}: the job's token is {row.fence}, not {fence}")
        return ControlRequests(
            requested=row.requested,
            pause_saves=row.pause_saves,
            pause_force=row.pause_force,
            checkpoint_requests=row.checkpoint_requests,
            preemption=row.preemption or "terminate",
            part_ended="" if row.ending is None else row.ending["node"],
            interactive=bool(row.interactive),
            release=bool(row.release),
            current_step=row.current_step or 0,
        )


def live(db: Database, *, node: str | None = None) -> list[LiveLease]:
    """All live leases, or those of one node."""
    query = select(*_LEASE_COLUMNS).where(Lease.released_at.is_(None))
    if node is not None:
        query = query.where(Lease.node == node)
    with db.query() as connection:
        return [LiveLease._make(row) for row in connection.execute(query.order_by(Lease.id))]


def unconfirmed_jobs(session: Session) -> frozenset[str]:
    """Jobs whose claimed leases were neither renewed nor revoked for ``UNCONFIRMED_AFTER``; their state is unknown."""
    long_ago = database_now(session) - UNCONFIRMED_AFTER
    query = select(Lease.job_id).where(Lease.released_at.is_(None), Lease.renewed_at < long_ago)
    return frozenset(session.scalars(query))


def revoke(
    db: Database, lease: LiveLease, *, cause: str, message: str, actor: str, backoff: Backoff, left_behind: bool = False
) -> bool:
    """Revoke a lease whose counter is unchanged, and end that part of its attempt; False when it was renewed meanwhile.

    The caller has observed no renewal for the TTL, or knows that no process of the attempt is left except unkillable
    ones (``left_behind``). If writing the outcome fails, which is an error of Trainyard, the job and its devices are
    released all the same and no node is blamed.
    """

    def end_it(session: Session, job: Job, row: Lease) -> None:
        detect_seconds = None
        if row.renewed_at is not None:
            detect_seconds = round(max(0.0, (utc_now() - row.renewed_at).total_seconds()), 3)
        attempt = session.get_one(Attempt, (lease.job_id, lease.attempt))
        outcome = Outcome(
            # An attempt that was never claimed does not use a retry.
            kind="failed" if lease.counter else "requeued",
            cause=cause,
            message=message,
            ran_seconds=row.ran_seconds,
            related_task=lease.node,
            detect_seconds=detect_seconds,
            left_behind=left_behind,
            end_step=job.current_step if attempt.trained_at is not None else attempt.start_step,
        )
        end_part(session, job, row, outcome, backoff, actor=actor)

    try:
        return _take(db, lease, end_it)
    except Exception as error:
        if isinstance(error, TrainyardError) or is_transient(error):
            raise
        log.exception("job %s attempt %s: the outcome %s could not be written", lease.job_id, lease.attempt, cause)
        instead = outcome_errors.outcome_of(cause, error, left_behind=left_behind)
        return _take(
            db, lease, lambda session, job, row: outcome_errors.end(session, job, row, instead, backoff, actor=actor)
        )


def _take(db: Database, lease: LiveLease, end: Callable[[Session, Job, Lease], object]) -> bool:
    with db.write() as session:
        job = transitions.load_for_change(session, lease.job_id)
        row = session.get(Lease, lease.lease_id, with_for_update=True, populate_existing=True)
        if row is None or row.released_at is not None or row.counter != lease.counter:
            return False
        end(session, job, row)
        return True
