"""Planning and announcement: from QUEUED to a dispatched attempt; every step is idempotent."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import timedelta
from typing import Any

from sqlalchemy import select, update

from app.database.engine import Database
from app.domain.lifecycle.states import JobState
from app.domain.scheduling.cluster_state import ClusterState
from app.domain.scheduling.planner import Plan, Planning, SchedulingPolicy
from app.domain.scheduling.planning_pass import run_pass
from app.domain.scheduling.preemption import Preemption, Running
from app.domain.scheduling.queue_order import QueuedJob
from app.domain.scheduling.scoring import Weights
from app.models import Attempt, Job, Lease, ProcessBeat
from app.models.base import utc_now
from app.services.lifecycle import transitions
from app.services.nodes import data_locality, registry
from app.services.queues import limits, project_quotas
from app.services.scheduling import pending_jobs, pending_reasons, running_jobs
from app.services.scheduling.pending_jobs import PendingJob
from app.services.scheduling.placement import Dispatched, place_all
from app.services.scheduling.preemption import PREEMPTIBLE, request_preemption
from config.settings import Settings

PLANNER = "planner"
_EXPLAINED_AT_ONCE = 50


@dataclass(frozen=True, kw_only=True)
class LeaderRecord:
    """The current leader; it counts as dead when ``counter`` stops rising."""

    holder: str
    counter: int


@dataclass(frozen=True, kw_only=True)
class PassRecord:
    """Input and result of a full pass; ``cluster`` is the state after the plan."""

    cluster: ClusterState
    made: Plan
    jobs: Sequence[QueuedJob]
    running: Sequence[Running]
    dispatched: Sequence[Dispatched]


def plan_once(
    db: Database,
    *,
    actor: str = "planner",
    page_size: int = 500,
    policy: SchedulingPolicy | None = None,
    nudge: Callable[[str, str], None] = lambda _job, _node: None,
    announce: Callable[[list[Dispatched]], None] = lambda _placed: None,
    remember: Callable[[PassRecord], None] = lambda _seen: None,
) -> list[Dispatched]:
    """One full pass: read a snapshot, `page_size` jobs of each project at a time, plan, place what can start.

    Jobs of paused or full queues are not read, so their number does not matter. ``nudge`` wakes the node of a job that
    is to stop; ``announce`` gets each batch of placements once it is written; ``remember`` gets the result of the pass.
    """
    with db.snapshot() as session:
        if not pending_jobs.any_pending(session):
            return []  # an idle system stops here at almost no cost
        room = limits.rooms(session)
        served = limits.open_queues(session, room) if room else None
        if served is not None and not pending_jobs.any_pending_in(session, served):
            return []
        policy, running = policy or SchedulingPolicy(), running_jobs.running(session)
        planning = Planning(
            registry.capacities(session),
            project_quotas.accounts(session, room),
            running,
            replace(policy, now=utc_now().timestamp()),
        )
        caches = data_locality.caches(session, policy.weights)
        windows = pending_jobs.windows(session, page_size, queues=served, caches=caches)
        made, previous, jobs = _decide(pending_jobs.with_reservation(session), windows, planning, served)
        pending_reasons.complete(session, made.pending_reasons, jobs, [*planning.cluster.node_index.nodes.values()])
    dispatched = place_all(db, made.placements, actor, announce)
    # Reservations are stored before victims are asked to stop: the next pass must see them.
    write_updates(db, _updates(made, previous))
    for preemption in made.preemptions:
        _preempt(db, preemption, actor, nudge)
    remember(PassRecord(cluster=planning.cluster, made=made, jobs=jobs, running=running, dispatched=dispatched))
    return dispatched


def _updates(made: Plan, previous: Mapping[str, str]) -> dict[str, dict[str, Any]]:
    """Job → changed columns: reservations, and pending reasons that differ from ``previous``."""
    updates: dict[str, dict[str, Any]] = {
        job_id: {"awaits_node": next(iter(names), ""), "awaits_others": list(names[1:])}
        for job_id, names in made.reservations.items()
    }
    for job_id, reason in made.pending_reasons.items():
        if previous[job_id] != reason:
            updates.setdefault(job_id, {})["pending_reason"] = reason
    return updates


def policy_of(settings: Settings) -> SchedulingPolicy:
    """The configured scheduling policy."""
    return SchedulingPolicy(
        weights=weights_of(settings), reserve_after_seconds=settings.scheduler.reserve_after_seconds
    )


def weights_of(settings: Settings) -> Weights:
    """The configured weight of each score."""
    return asdict(settings.score)


def unannounced(db: Database, *, older_than_seconds: float) -> list[Dispatched]:
    """Dispatched attempts that no node claimed in time; this call marks them as announced again."""
    cutoff = utc_now() - timedelta(seconds=older_than_seconds)
    with db.write() as session:
        rows = session.execute(
            select(Attempt, Lease.node, Job.priority)
            .join(Lease, (Lease.job_id == Attempt.job_id) & (Lease.attempt == Attempt.number))
            .join(Job, Job.id == Attempt.job_id)
            .where(Lease.released_at.is_(None), Lease.counter == 0, Attempt.announced_at < cutoff)
        ).all()
        for attempt, _, _ in rows:
            attempt.announced_at = utc_now()
        return [
            Dispatched(job_id=a.job_id, attempt=a.number, node=node, device_type=a.device_type, priority=priority)
            for a, node, priority in rows
        ]


def any_unclaimed(db: Database) -> bool:
    """Whether a dispatched attempt waits for a node to claim it."""
    with db.query() as connection:
        unclaimed = select(Lease.id).where(Lease.released_at.is_(None), Lease.counter == 0).limit(1)
        return connection.execute(unclaimed).first() is not None


def dispatched_to(db: Database, node: str) -> list[tuple[str, int]]:
    """(job, attempt) that wait for this node to claim them."""
    with db.query() as connection:
        rows = connection.execute(
            select(Lease.job_id, Lease.attempt)
            .where(Lease.node == node, Lease.released_at.is_(None), Lease.counter == 0)
            .order_by(Lease.id)
        )
        return [(row.job_id, row.attempt) for row in rows]


def renew(db: Database, me: str) -> bool:
    """Raise the counters of this process, of its heartbeat and of what it leads; returns whether it is the leader."""
    mine = (
        update(ProcessBeat)
        .where(ProcessBeat.holder == me)
        .values(counter=ProcessBeat.counter + 1, last_seen_at=utc_now())
        .returning(ProcessBeat.name)
    )
    with db.at_once() as connection:
        return PLANNER in connection.execute(mine).scalars().all()


def leader(db: Database) -> LeaderRecord | None:
    """The current leader, if there was ever one."""
    with db.query() as connection:
        row = connection.execute(
            select(ProcessBeat.holder, ProcessBeat.counter).where(ProcessBeat.name == PLANNER)
        ).one_or_none()
    return None if row is None else LeaderRecord(holder=row.holder, counter=row.counter)


def renew_leadership(db: Database, me: str, *, replacing: LeaderRecord | None = None) -> LeaderRecord:
    """Renew or take leadership; returns the current leader. ``replacing`` is a leader that the caller found dead."""
    with db.write() as session:
        row = session.get(ProcessBeat, PLANNER, with_for_update=True)
        if row is None:
            row = ProcessBeat(name=PLANNER, kind="planner", holder=me, counter=0)
            session.add(row)
        if row.holder == me or (
            replacing is not None and replacing == LeaderRecord(holder=row.holder, counter=row.counter)
        ):
            row.holder = me
            row.counter += 1
            row.last_seen_at = utc_now()
        return LeaderRecord(holder=row.holder, counter=row.counter)


def beat(db: Database, name: str, holder: str) -> None:
    """Record a coordinator's heartbeat."""
    with db.write() as session:
        row = session.get(ProcessBeat, name)
        if row is None:
            row = ProcessBeat(name=name, kind="coordinator", counter=0)
            session.add(row)
        row.holder = holder
        row.counter += 1
        row.last_seen_at = utc_now()


def _decide(
    promised: Sequence[PendingJob],
    windows: Iterable[list[PendingJob]],
    planning: Planning,
    served: Sequence[str] | None,
) -> tuple[Plan, dict[str, str], list[QueuedJob]]:
    """The plan, previous pending reasons, and all jobs that were read; ``served`` None is every queue."""
    previous: dict[str, str] = {}
    jobs: list[QueuedJob] = []

    def noted(read: Iterable[list[PendingJob]]) -> Iterator[list[QueuedJob]]:
        for window in read:
            previous.update((waiting.job.job_id, waiting.pending_reason) for waiting in window)
            jobs.extend(waiting.job for waiting in window)
            yield [waiting.job for waiting in window]

    first = next(noted([list(promised)]))
    return run_pass(planning, first, noted(windows), served), previous, jobs


def _preempt(db: Database, preemption: Preemption, actor: str, nudge: Callable[[str, str], None]) -> None:
    """Request the preemption, unless victim or waiting job have changed since the snapshot."""
    with db.write() as session:
        job = transitions.load_for_change(session, preemption.job_id)
        waiting = session.get(Job, preemption.for_job)
        still_waits = waiting is not None and waiting.state is JobState.QUEUED and waiting.requested is None
        may_be_preempted = job.attempt == preemption.attempt and job.document.scheduling_config.preemptible
        if not (still_waits and may_be_preempted and job.state in PREEMPTIBLE):
            return
        job = request_preemption(session, preemption.job_id, actor=actor, reason=preemption.reason)
        nodes_of = list(job.node_names)
    for node in nodes_of:
        nudge(preemption.job_id, node)


def write_updates(db: Database, updates: Mapping[str, dict[str, Any]]) -> None:
    """Update columns of jobs that are still queued."""
    # By id and in small transactions: the result mirror locks many jobs, too, and cancels must not wait long.
    for batch in _batches(sorted(updates.items()), _EXPLAINED_AT_ONCE):
        with db.write() as session:
            for job_id, values in batch:
                session.execute(
                    update(Job)
                    .where(Job.id == job_id, Job.status == JobState.QUEUED)
                    .values(**values)
                    .execution_options(synchronize_session=False)
                )


def _batches(items: list[tuple[str, dict[str, Any]]], size: int) -> Iterator[list[tuple[str, dict[str, Any]]]]:
    return (items[start : start + size] for start in range(0, len(items), size))
