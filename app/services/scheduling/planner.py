"""Planning and announcing: from QUEUED to a dispatched attempt, all of it safe to do twice."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import timedelta
from typing import Any

from sqlalchemy import select, update

from app.database.engine import Database
from app.domain.lifecycle.states import JobState
from app.domain.scheduling.cluster_state import Giving
from app.domain.scheduling.planner import Plan, Planning, Policy
from app.domain.scheduling.planning_pass import one_pass
from app.domain.scheduling.preemption import Preemption, Running
from app.domain.scheduling.queue_order import QueuedJob
from app.domain.scheduling.scoring import Weights
from app.models import Attempt, Job, Lease, ProcessBeat
from app.models.base import utc_now
from app.services.lifecycle import transitions
from app.services.nodes import data_locality, registry
from app.services.queues import limits, project_quotas
from app.services.scheduling import pending_jobs, running_jobs
from app.services.scheduling.pending_jobs import Waiting
from app.services.scheduling.placement import Dispatched, place_all
from app.services.scheduling.preemption import PREEMPTIBLE, wish_preempt
from config.settings import Settings

PLANNER = "planner"
_EXPLAINED_AT_ONCE = 50


@dataclass(frozen=True, kw_only=True)
class Holding:
    """Who plans; ``counter`` standing still means that the holder is gone."""

    holder: str
    counter: int


@dataclass(frozen=True, kw_only=True)
class Seen:
    """What a pass looked at, and what it decided; ``giving`` is as the plan left it."""

    giving: Giving
    made: Plan
    jobs: Sequence[QueuedJob]
    running: Sequence[Running]
    dispatched: Sequence[Dispatched]


def plan_once(
    db: Database, *, actor: str = "planner", page_size: int = 500, policy: Policy | None = None,
    nudge: Callable[[str, str], None] = lambda _job, _node: None,
    announce: Callable[[list[Dispatched]], None] = lambda _placed: None,
    remember: Callable[[Seen], None] = lambda _seen: None,
) -> list[Dispatched]:  # fmt: skip
    """One full pass: read a snapshot, `page_size` jobs of each project at a time, plan, place what can start.

    Jobs of queues that are paused or full are not even read: however many they are, they cost a look next to nothing.
    ``nudge`` has a node read at once that a job of its is to stop; ``announce`` gets what is placed, as it is placed;
    ``remember`` what the pass ends with.
    """
    with db.snapshot() as session:
        if not pending_jobs.anybody(session):
            return []  # most looks of an idle system end here, and cost it next to nothing
        room = limits.rooms(session)
        served = limits.open_queues(session, room) if room else None
        if served is not None and not pending_jobs.anybody_of(session, served):
            return []
        policy, running = policy or Policy(), running_jobs.running(session)
        planning = Planning(
            registry.capacities(session), project_quotas.accounts(session, room), running,
            replace(policy, now=utc_now().timestamp()),
        )  # fmt: skip
        caches = data_locality.caches(session, policy.weights)
        windows = pending_jobs.windows(session, page_size, queues=served, caches=caches)
        made, told, jobs = _decide(pending_jobs.promised(session), windows, planning, served)
    dispatched = place_all(db, made.placements, actor, announce)
    # What a node is cleared for is written down before anybody there is asked: the next pass must know.
    write_news(db, _news(made, told))
    for preemption in made.preemptions:
        _preempt(db, preemption, actor, nudge)
    remember(Seen(giving=planning.giving, made=made, jobs=jobs, running=running, dispatched=dispatched))
    return dispatched


def _news(made: Plan, told: Mapping[str, str]) -> dict[str, dict[str, Any]]:
    """Job → columns: what is kept for it, and why it waits, where it was ``told`` something else."""
    news: dict[str, dict[str, Any]] = {
        job_id: {"awaits_node": next(iter(names), ""), "awaits_others": list(names[1:])}
        for job_id, names in made.promises.items()
    }
    for job_id, said in made.pending_reasons.items():
        if told[job_id] != said:
            news.setdefault(job_id, {})["pending_reason"] = said
    return news


def policy_of(settings: Settings) -> Policy:
    """As it is configured."""
    return Policy(weights=weights_of(settings), reserve_after_seconds=settings.scheduler.reserve_after_seconds)


def weights_of(settings: Settings) -> Weights:
    """What each score counts here."""
    return asdict(settings.score)


def unannounced(db: Database, *, older_than_seconds: float) -> list[Dispatched]:
    """Dispatched attempts that nobody claimed within the time; they count as announced again by this call."""
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


def dispatched_to(db: Database, node: str) -> list[tuple[str, int]]:
    """(job, attempt) that wait for this node to claim them."""
    with db.read() as session:
        rows = session.execute(
            select(Lease.job_id, Lease.attempt)
            .where(Lease.node == node, Lease.released_at.is_(None), Lease.counter == 0)
            .order_by(Lease.id)
        )
        return [(row.job_id, row.attempt) for row in rows]


def hold_planner(db: Database, me: str, *, replacing: Holding | None = None) -> Holding:
    """Stay or become the planner; returns who is. ``replacing`` is a holder that the caller has found dead."""
    with db.write() as session:
        row = session.get(ProcessBeat, PLANNER, with_for_update=True)
        if row is None:
            row = ProcessBeat(name=PLANNER, kind="planner", holder=me, counter=0)
            session.add(row)
        if row.holder == me or (replacing is not None and replacing == Holding(holder=row.holder, counter=row.counter)):
            row.holder = me
            row.counter += 1
            row.last_seen_at = utc_now()
        return Holding(holder=row.holder, counter=row.counter)


def beat(db: Database, name: str, holder: str) -> None:
    """A coordinator's sign of life."""
    with db.write() as session:
        row = session.get(ProcessBeat, name)
        if row is None:
            row = ProcessBeat(name=name, kind="coordinator", counter=0)
            session.add(row)
        row.holder = holder
        row.counter += 1
        row.last_seen_at = utc_now()


def _decide(
    promised: Sequence[Waiting], windows: Iterable[list[Waiting]], planning: Planning, served: Sequence[str] | None
) -> tuple[Plan, dict[str, str], list[QueuedJob]]:
    """The plan, what everybody was told before, and all that were read; ``served`` None is every queue."""
    told: dict[str, str] = {}
    jobs: list[QueuedJob] = []

    def noted(read: Iterable[list[Waiting]]) -> Iterator[list[QueuedJob]]:
        for window in read:
            told.update((waiting.job.job_id, waiting.pending_reason) for waiting in window)
            jobs.extend(waiting.job for waiting in window)
            yield [waiting.job for waiting in window]

    first = next(noted([list(promised)]))
    return one_pass(planning, first, noted(windows), served), told, jobs


def _preempt(db: Database, preemption: Preemption, actor: str, nudge: Callable[[str, str], None]) -> None:
    """Ask the victim, if all is still as it was seen."""
    with db.write() as session:
        job = transitions.load_for_change(session, preemption.job_id)
        waiting = session.get(Job, preemption.for_job)
        still_waits = waiting is not None and waiting.state is JobState.QUEUED and waiting.requested is None
        may_go = job.attempt == preemption.attempt and project_quotas.is_preemptible(job.spec)
        if not (still_waits and may_go and job.state in PREEMPTIBLE):
            return
        job = wish_preempt(session, preemption.job_id, actor=actor, reason=preemption.reason)
        nodes_of = list(job.node_names)
    for node in nodes_of:
        nudge(preemption.job_id, node)


def write_news(db: Database, news: Mapping[str, dict[str, Any]]) -> None:
    """Columns of jobs that still wait."""
    # In the order of ids and in small transactions: the mirror locks many jobs too, and cancels must not wait long.
    for batch in _batches(sorted(news.items()), _EXPLAINED_AT_ONCE):
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
