"""Metrics for Prometheus, computed from the database on each scrape, so that they survive restarts."""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import date, datetime, timedelta
from typing import Any

from sqlalchemy import ColumnElement, SQLColumnExpression, func, select
from sqlalchemy.orm import Session

from app.domain.batches.states import BatchState
from app.domain.lifecycle.states import JobState
from app.domain.serving.states import ServiceState
from app.domain.sweeps.states import SweepState, TrialState
from app.models import (
    Batch,
    Inspection,
    Job,
    Lease,
    ModelUsage,
    Node,
    ProcessBeat,
    Queue,
    QueueWait,
    Service,
    ServiceLoad,
    Sweep,
    Trial,
    WebhookDelivery,
)
from app.models.base import utc_now
from app.models.webhook import IS_WAITING
from app.security.permissions import Caller, Permission
from app.services.operations import cluster_summary, sweep_measurements, unrecorded_outcomes
from app.services.operations.measurements import Gauge, Histogram, Labels, Measurement, cumulative, seen
from app.services.queues import limits as queue_limits
from app.services.scheduling.planner import PLANNER

LOAD_COUNTS = timedelta(seconds=10)  # what a gateway has not renewed for so long counts no more


def of_jobs(session: Session, caller: Caller) -> Iterator[Measurement]:
    """Metrics of jobs visible to the caller, by project and queue."""
    yield _jobs(session, caller)
    yield _oldest_queued(session, caller)
    yield _waits(session, caller)
    yield from _speeds(session, caller)
    yield from _searches(session, caller)
    yield from _services(session, caller)


def of_cluster(session: Session, caller: Caller) -> Iterator[Measurement]:
    """Cluster-wide metrics, for super admins that do not act within one project."""
    if caller.project is None and caller.may(Permission.CLUSTER_ADMIN):
        yield from _machines(session)
        yield from _queues(session)
        yield from _lags(session)
        yield from _backlogs(session)


def _searches(session: Session, caller: Caller) -> Iterator[Measurement]:
    sweeps = select(Sweep.project, Sweep.status, func.count()).group_by(Sweep.project, Sweep.status)
    trials = (
        select(Sweep.project, Trial.state, func.count())
        .join(Sweep, Sweep.id == Trial.sweep_id)
        .group_by(Sweep.project, Trial.state)
    )
    services = select(Service.project, Service.status, func.count()).group_by(Service.project, Service.status)
    batches = select(Batch.project, Batch.status, func.count()).group_by(Batch.project, Batch.status)
    for name, meaning, states, of_project, query in (
        ("sweeps", "Sweeps by project and state", SweepState, Sweep.project, sweeps),
        ("trials", "Trials of sweeps by project and state", TrialState, Sweep.project, trials),
        ("services", "Services by project and state", ServiceState, Service.project, services),
        ("batches", "Batches of requests by project and state", BatchState, Batch.project, batches),
    ):
        counted = {(row[0], row[1]): row[2] for row in session.execute(seen(query, of_project, caller))}
        projects = sorted({project for project, _ in counted})
        values = [((each, str(state)), counted.get((each, str(state)), 0)) for each in projects for state in states]
        yield Gauge(name=name, meaning=meaning, labels=("project", "state"), values=values)
    trunks = (
        select(Sweep.project, func.sum(Trial.fork_step))
        .join(Sweep, Sweep.id == Trial.sweep_id)
        .where(Trial.fork_step > 0, Trial.source != "exploited")
        .group_by(Sweep.project)
    )
    spared = [((row[0],), row[1]) for row in session.execute(seen(trunks, Sweep.project, caller))]
    meaning = "Steps that trials of sweeps did not train because they began with another one's checkpoint"
    yield Gauge(name="trunk_steps", meaning=meaning, labels=("project",), values=spared)
    yield from sweep_measurements.of_counts(session, caller)


def _services(session: Session, caller: Caller) -> Iterator[Gauge]:
    now = utc_now()
    live = seen(select(Service.project, Service.name, Service.wanted), Service.project, caller)
    rows = session.execute(live.where(Service.ended_at.is_(None)).order_by(Service.project, Service.name)).all()
    values: list[tuple[Labels, float]] = [((row.project, row.name), row.wanted) for row in rows]
    yield Gauge(
        name="service_replicas_wanted",
        meaning="Replicas that a service is to have now",
        labels=("project", "service"),
        values=values,
    )
    load = (
        select(Service.project, Service.name, func.sum(ServiceLoad.in_flight), func.sum(ServiceLoad.waiting))
        .join(Service, Service.id == ServiceLoad.service_id)
        .where(ServiceLoad.at > now - LOAD_COUNTS, Service.ended_at.is_(None))
        .group_by(Service.project, Service.name)
    )
    counted = {(row[0], row[1]): (row[2], row[3]) for row in session.execute(seen(load, Service.project, caller))}
    yield Gauge(
        name="service_requests",
        meaning="Requests that replicas answer (in_flight), and that wait for one (waiting)",
        labels=("project", "service", "state"),
        values=[
            ((*labels, state), counted.get(labels, (0, 0))[index])
            for labels in [(row.project, row.name) for row in rows]
            for index, state in enumerate(("in_flight", "waiting"))
        ],
    )
    yield _tokens_today(session, caller, now.date())


def _tokens_today(session: Session, caller: Caller, today: date) -> Gauge:
    used = (
        select(ModelUsage.project, func.sum(ModelUsage.prompt_tokens), func.sum(ModelUsage.completion_tokens))
        .where(ModelUsage.day == today)
        .group_by(ModelUsage.project)
    )
    rows = session.execute(seen(used, ModelUsage.project, caller)).all()
    return Gauge(
        name="model_tokens_today",
        meaning="Tokens that models were given (prompt) and have answered (completion) since midnight UTC",
        labels=("project", "kind"),
        values=[
            ((row[0], kind), float(count))
            for row in rows
            for kind, count in (("prompt", row[1]), ("completion", row[2]))
        ],
    )


def _jobs(session: Session, caller: Caller) -> Gauge:
    query = select(Job.project, Job.queue, Job.status, func.count()).group_by(Job.project, Job.queue, Job.status)
    counted = {(row[0], row[1], row[2]): row[3] for row in session.execute(seen(query, Job.project, caller))}
    places = sorted({(project, queue) for project, queue, _ in counted})
    return Gauge(
        name="jobs",
        meaning="Jobs by project, queue and state",
        labels=("project", "queue", "state"),
        values=[
            ((project, queue, str(state)), counted.get((project, queue, str(state)), 0))
            for project, queue in places
            for state in JobState
        ],
    )


def _oldest_queued(session: Session, caller: Caller) -> Gauge:
    query = (
        select(Job.project, Job.queue, func.min(Job.queued_at, type_=Job.queued_at.type))
        .where(Job.status == JobState.QUEUED)
        .group_by(Job.project, Job.queue)
    )
    now = utc_now()
    return Gauge(
        name="oldest_queued_seconds",
        meaning="Waiting time of the longest queued job",
        labels=("project", "queue"),
        values=[((row[0], row[1]), _age(row[2], now)) for row in session.execute(seen(query, Job.project, caller))],
    )


def _waits(session: Session, caller: Caller) -> Histogram:
    rows = session.scalars(seen(select(QueueWait), QueueWait.project, caller))
    by_place: dict[Labels, list[QueueWait]] = {}
    for row in rows:
        by_place.setdefault((row.project, row.queue), []).append(row)
    return Histogram(
        name="queue_wait_seconds",
        meaning="Queue time of attempts until placement",
        labels=("project", "queue"),
        values=[(place, *_histogram(found)) for place, found in sorted(by_place.items())],
    )


def _histogram(rows: Iterable[QueueWait]) -> tuple[list[tuple[float, int]], float]:
    rows = list(rows)
    counted = {queue_limits.bound_of(row.up_to_seconds): row.attempts for row in rows}
    bounds = [*map(float, queue_limits.WAIT_BOUNDS), math.inf]
    return cumulative(counted, bounds), math.fsum(row.waited_seconds for row in rows)


# Throughput of running jobs: (name, meaning, value from the newest metrics, aggregation over jobs).
_Value = Callable[[Mapping[str, Any]], float | None]


def _number(metrics: Mapping[str, Any], name: str) -> float | None:
    value = metrics.get(name)  # non-finite values are stored as strings
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _steps_per_second(metrics: Mapping[str, Any]) -> float | None:
    seconds = _number(metrics, "step_seconds")
    return 1.0 / seconds if seconds is not None and seconds > 0 else None


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)


_SPEEDS: tuple[tuple[str, str, _Value, Callable[[Sequence[float]], float]], ...] = (
    ("steps_per_second", "Optimizer steps per second of all training jobs", _steps_per_second, math.fsum),
    (
        "samples_per_second",
        "Training records per second of all training jobs",
        lambda metrics: _number(metrics, "samples_per_second"),
        math.fsum,
    ),
    (
        "tokens_per_second",
        "Training tokens per second of all training jobs",
        lambda metrics: _number(metrics, "tokens_per_second"),
        math.fsum,
    ),
    (
        "gpu_utilization_percent",
        "Mean GPU utilization over all training jobs",
        lambda metrics: _number(metrics, "gpu_utilization"),
        _mean,
    ),
)


def _speeds(session: Session, caller: Caller) -> Iterator[Gauge]:
    query = select(Job.project, Job.queue, Job.latest_metrics).where(Job.status == JobState.TRAINING)
    training = session.execute(seen(query, Job.project, caller)).all()
    for name, meaning, value_of, combine in _SPEEDS:
        by_place: dict[Labels, list[float]] = {}
        for row in training:
            if (value := value_of(row.latest_metrics)) is not None:
                by_place.setdefault((row.project, row.queue), []).append(value)
        values = [(place, combine(numbers)) for place, numbers in sorted(by_place.items())]
        yield Gauge(name=name, meaning=meaning, labels=("project", "queue"), values=values)


def _machines(session: Session) -> Iterator[Gauge]:
    states = cluster_summary.nodes_by_state(session)
    yield _by("nodes", "Nodes by state", "state", states)
    now = utc_now()
    seen = {
        name: _age(at, now) for name, at in session.execute(select(Node.name, Node.last_seen_at).order_by(Node.name))
    }
    yield _by("node_silent_seconds", "Time since a node's last heartbeat", "node", seen)
    devices = cluster_summary.devices_by_type(session)
    yield _by("devices", "Devices of all registered nodes", "type", {d.type: d.total for d in devices})
    yield _by("devices_in_use", "Devices used by attempts", "type", {d.type: d.in_use for d in devices})
    yield _by(
        "devices_share_in_use",
        "Devices used by attempts, half of one as 0.5",
        "type",
        {d.type: d.share_in_use for d in devices},
    )
    yield _by(
        "devices_out_of_service",
        "Devices held by an unkillable process",
        "type",
        {d.type: d.out_of_service for d in devices},
    )
    yield _by("devices_free", "Free devices of ready nodes", "type", {d.type: d.free for d in devices})


def _queues(session: Session) -> Iterator[Gauge]:
    queues = session.scalars(select(Queue).order_by(Queue.name)).all()
    yield _by("queue_paused", "Whether a queue is paused", "queue", {q.name: int(q.is_paused) for q in queues})
    for name, meaning in (
        ("max_running_jobs", "Maximum running jobs of a queue; absent: unlimited"),
        ("max_waiting_jobs", "Maximum waiting jobs of a queue; absent: unlimited"),
    ):
        limits = {q.name: getattr(q, name) for q in queues if getattr(q, name) is not None}
        yield _by(f"queue_{name}", meaning, "queue", limits)


def _lags(session: Session) -> Iterator[Gauge]:
    """Delays of the control plane; each is at most a few seconds in normal operation."""
    now = utc_now()
    live = Lease.released_at.is_(None)
    oldest: tuple[tuple[str, str, Any], ...] = (
        (
            "lease_silent_seconds",
            "Time since the least recently renewed lease was renewed",
            select(func.min(Lease.renewed_at, type_=Lease.renewed_at.type)).where(live, Lease.counter > 0),
        ),
        (
            "oldest_unclaimed_seconds",
            "Age of the oldest attempt not yet claimed by its node",
            select(func.min(Lease.created_at, type_=Lease.created_at.type)).where(live, Lease.counter == 0),
        ),
        (
            "oldest_pending_seconds",
            "Age of the oldest job not yet admitted",
            select(func.min(Job.created_at, type_=Job.created_at.type)).where(Job.status == JobState.PENDING),
        ),
        (
            "planner_silent_seconds",
            "Time since the planner renewed its leadership; absent: never elected",
            select(ProcessBeat.last_seen_at).where(ProcessBeat.name == PLANNER),
        ),
    )
    missing_when_none = {"planner_silent_seconds"}
    for name, meaning, query in oldest:
        moment = session.scalar(query)
        values = [] if moment is None and name in missing_when_none else [((), _age(moment, now))]
        yield Gauge(name=name, meaning=meaning, values=values)
    fresh = ProcessBeat.last_seen_at > now - cluster_summary.FRESH
    yield _one(
        "coordinators",
        "Coordinators with a heartbeat in the last 10 seconds",
        _count(session, ProcessBeat.name, ProcessBeat.kind == "coordinator", fresh),
    )


def _backlogs(session: Session) -> Iterator[Gauge]:
    yield _one(
        "leases", "Attempts that hold devices", _count(session, Lease.job_id.distinct(), Lease.released_at.is_(None))
    )
    yield _one(
        "outcome_errors",
        "Attempts of the last 24 hours whose outcome Trainyard failed to record",
        unrecorded_outcomes.count(session),
    )
    yield _one(
        "mirror_backlog_jobs",
        "Jobs whose newest state is not yet mirrored to the result backend",
        _count(session, Job.id, Job.mirrored_version < Job.version),
    )
    yield _one(
        "webhook_deliveries_waiting", "Pending webhook deliveries", _count(session, WebhookDelivery.id, IS_WAITING)
    )
    unfinished = select(Inspection.state, func.count()).group_by(Inspection.state)
    counted = {row[0]: row[1] for row in session.execute(unfinished.where(Inspection.state != "done"))}
    states = {state: counted.get(state, 0) for state in ("waiting", "running")}
    yield _by("preflights", "Waiting and running preflight inspections", "state", states)
    verdicts = select(Inspection.verdict, func.count()).where(Inspection.state == "done").group_by(Inspection.verdict)
    remembered = {row[0] or "left": row[1] for row in session.execute(verdicts)}
    yield _by("preflights_remembered", "Finished preflight inspections with a stored result", "verdict", remembered)


def _count(session: Session, what: SQLColumnExpression[Any], *which: ColumnElement[bool]) -> int:
    return session.scalar(select(func.count(what)).where(*which)) or 0


def _by(name: str, meaning: str, label: str, values: Mapping[str, float]) -> Gauge:
    return Gauge(name=name, meaning=meaning, labels=(label,), values=[((key,), each) for key, each in values.items()])


def _one(name: str, meaning: str, value: float) -> Gauge:
    return Gauge(name=name, meaning=meaning, values=[((), value)])


def _age(moment: datetime | None, now: datetime) -> float:
    return 0.0 if moment is None else max(0.0, (now - moment).total_seconds())
