"""Metrics of a replay: utilisation, waits by class of job, fairness, and the cost of preemption."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from simulation.fairness import DeviceTimeShare, jain, shares
from simulation.jobs import JobResult
from simulation.replay import Replay
from simulation.role_use import RoleUse, role_use
from simulation.trace import TraceJob

# Classes by which waits are compared.
CLASSES: Mapping[str, Callable[[TraceJob], str]] = MappingProxyType(
    {
        "all": lambda _: "",
        "project": lambda job: job.project,
        "devices": lambda job: f"{job.request.amount:g}",
        "priority": lambda job: str(job.priority),
    }
)


@dataclass(frozen=True, kw_only=True)
class WaitTimes:
    """Seconds until the first start, of jobs that started."""

    jobs: int
    mean: float
    p50: float
    p95: float
    longest: float


@dataclass(frozen=True, kw_only=True)
class ReplayReport:
    """Utilisation and shares cover the period of arrivals: the tail of the last jobs says little.

    ``goodput``: fraction of the used device time that was lasting work; not starts, saves and lost work.
    """

    jobs: int
    finished: int
    refused: int
    never_started: int
    utilisation: Mapping[str, float]  # device type → fraction in use
    waits: Mapping[str, Mapping[str, WaitTimes]]  # class → value → waits
    shares: Mapping[str, DeviceTimeShare]
    fairness: float
    preemptions: int
    lost_device_hours: float
    goodput: float
    makespan_seconds: float
    passes: int
    roles: Mapping[str, RoleUse]


def measure(done: Replay) -> ReplayReport:
    """The report on a replay."""
    outcomes = done.outcomes
    since = min((outcome.job.arrives_at for outcome in outcomes), default=0.0)
    until = max((outcome.job.arrives_at for outcome in outcomes), default=0.0)
    by_project = shares(done.cluster, outcomes, since=since, until=until)
    used = sum(stay.device_seconds for outcome in outcomes for stay in outcome.stays)
    worked = sum(outcome.job.seconds * outcome.stays[-1].amount for outcome in outcomes if outcome.ended_at is not None)
    return ReplayReport(
        jobs=len(outcomes),
        finished=sum(outcome.ended_at is not None for outcome in outcomes),
        refused=sum(bool(outcome.refused) for outcome in outcomes),
        never_started=sum(outcome.never_started for outcome in outcomes),
        utilisation=_utilisation(done, since, until),
        waits={name: _waits(outcomes, class_of) for name, class_of in CLASSES.items()},
        shares=by_project,
        fairness=jain([share.ratio for share in by_project.values() if share.entitled]),
        preemptions=sum(outcome.preemptions for outcome in outcomes),
        lost_device_hours=sum(outcome.lost_seconds * outcome.job.request.amount for outcome in outcomes) / 3600,
        goodput=worked / used if used else 0.0,
        makespan_seconds=done.ended_at - since,
        passes=done.passes,
        roles=role_use(outcomes),
    )


def use_over_time(done: Replay, points: int, until: float) -> dict[str, list[float]]:
    """Project → average number of devices in each of ``points`` equal intervals from 0 to ``until``."""
    width = until / points
    found: dict[str, list[float]] = {}
    for outcome in done.outcomes:
        line = found.setdefault(outcome.job.project, [0.0] * points)
        for stay in outcome.stays:
            for part in range(int(stay.started_at // width), min(points, math.ceil(stay.ended_at / width))):
                within = min(stay.ended_at, (part + 1) * width) - max(stay.started_at, part * width)
                line[part] += within * stay.amount / width
    return dict(sorted(found.items()))


def waits_of(seconds: Sequence[float]) -> WaitTimes:
    """Percentiles by nearest rank: each is the wait of a job. Raises ValueError without any waits."""
    if not seconds:
        raise ValueError("there are no waits")
    line = sorted(seconds)
    p50, p95 = (line[max(0, math.ceil(part * len(line)) - 1)] for part in (0.5, 0.95))
    return WaitTimes(jobs=len(line), mean=sum(line) / len(line), p50=p50, p95=p95, longest=line[-1])


def _waits(outcomes: Iterable[JobResult], class_of: Callable[[TraceJob], str]) -> dict[str, WaitTimes]:
    found: dict[str, list[float]] = {}
    for outcome in outcomes:
        if outcome.wait_seconds is not None:
            found.setdefault(class_of(outcome.job), []).append(outcome.wait_seconds)
    return {value: waits_of(seconds) for value, seconds in sorted(found.items(), key=lambda item: _in_order(item[0]))}


def _in_order(value: str) -> tuple[float, str]:
    try:
        return float(value), ""
    except ValueError:
        return 0.0, value


def _utilisation(done: Replay, since: float, until: float) -> dict[str, float]:
    used = dict.fromkeys(done.cluster.devices(), 0.0)
    for outcome in done.outcomes:
        for stay in outcome.stays:
            used[stay.device_type] += max(0.0, min(stay.ended_at, until) - stay.started_at) * stay.amount
    span = until - since
    return {kind: used[kind] / (span * count) if span else 0.0 for kind, count in done.cluster.devices().items()}
