"""Fairness: device time that each project got and was entitled to, and one index over all projects."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import inf

from app.domain.scheduling.fair_share import ProjectQuota
from simulation.jobs import JobResult
from simulation.trace import ReplayCluster


@dataclass(frozen=True, kw_only=True)
class DeviceTimeShare:
    """Device-seconds of a project within a period."""

    got: float
    entitled: float

    @property
    def ratio(self) -> float:
        return self.got / self.entitled if self.entitled else 1.0


def jain(values: Sequence[float]) -> float:
    """Jain's fairness index: 1 when all are equal, 1/n when one has everything.

    Jain, Chiu and Hawe, *A Quantitative Measure of Fairness and Discrimination for Resource Allocation in Shared
    Computer Systems*, DEC Research Report TR-301 (1984).
    """
    squares = sum(value * value for value in values)
    return sum(values) ** 2 / (len(values) * squares) if squares else 1.0


def shares(
    cluster: ReplayCluster, outcomes: Iterable[JobResult], *, since: float, until: float
) -> dict[str, DeviceTimeShare]:
    """Project → its share between the two times; of GPUs where there are any, else of CPU slots.

    At any moment a project is entitled to its deserved devices as far as it has work for them, and to its weighted part
    of the rest; an idle project is entitled to nothing.
    """
    kind = "cuda" if cluster.capacity("cuda") else "cpu"
    capacity = float(cluster.capacity(kind))
    mine = [outcome for outcome in outcomes if outcome.job.request.device_kind == kind and not outcome.refused]
    got = {outcome.job.project: 0.0 for outcome in mine}
    for outcome in mine:
        for stay in outcome.stays:
            got[outcome.job.project] += max(0.0, min(stay.ended_at, until) - max(stay.started_at, since)) * stay.amount
    entitled = dict.fromkeys(got, 0.0)
    for seconds, demands in _spells(mine, since, until):
        for project, amount in _entitlements(capacity, kind, demands, cluster.quotas).items():
            entitled[project] += amount * seconds
    return {name: DeviceTimeShare(got=got[name], entitled=entitled[name]) for name in sorted(got)}


# (devices requested by a project's non-preemptible jobs, by its preemptible jobs)
_Demand = tuple[float, float]


def _spells(outcomes: Iterable[JobResult], since: float, until: float) -> Iterator[tuple[float, dict[str, _Demand]]]:
    """(duration, demand by project) of successive periods with constant demand."""
    changes: list[tuple[float, str, int, float]] = []
    for outcome in outcomes:
        job, place = outcome.job, int(outcome.job.is_preemptible)
        changes.append((job.arrives_at, job.project, place, job.request.amount))
        changes.append((inf if outcome.ended_at is None else outcome.ended_at, job.project, place, -job.request.amount))
    wanted: dict[str, list[float]] = {}
    at = since
    for when, project, place, amount in sorted(changes):
        if min(when, until) > at:
            yield min(when, until) - at, {name: (fixed, lent) for name, (fixed, lent) in wanted.items()}
            at = min(when, until)
        wanted.setdefault(project, [0.0, 0.0])[place] += amount


def _entitlements(
    capacity: float, kind: str, demands: Mapping[str, _Demand], quotas: Mapping[str, ProjectQuota]
) -> dict[str, float]:
    asked: dict[str, float] = {}
    own: dict[str, tuple[float, float]] = {}
    weights: dict[str, float] = {}
    for name, (fixed, lent) in demands.items():
        quota = quotas.get(name, ProjectQuota()).of(kind)
        deserved = float(quota.deserved or 0)
        # Non-preemptible usage never exceeds the deserved quota, where there is one.
        stays = fixed if quota.deserved is None else min(fixed, deserved)
        asked[name] = min(stays + lent, inf if quota.most is None else float(quota.most))
        own[name] = deserved, min(asked[name], deserved)
        weights[name] = quota.over_quota_weight
    given = _fill(capacity, own)
    left = capacity - sum(given.values())
    more = _fill(left, {name: (weights[name], asked[name] - given[name]) for name in demands})
    return {name: given[name] + more[name] for name in demands}


def _fill(amount: float, wanted: Mapping[str, tuple[float, float]]) -> dict[str, float]:
    """Water-filling over name → (weight, maximum): equal amounts per weight until a maximum is reached."""
    given = dict.fromkeys(wanted, 0.0)
    open_ = {name for name, (weight, most) in wanted.items() if weight > 0 and most > 0}
    while open_ and amount > 1e-9:
        level = amount / sum(wanted[name][0] for name in open_)
        level = min(level, *((wanted[name][1] - given[name]) / wanted[name][0] for name in open_))
        for name in open_:
            given[name] += level * wanted[name][0]
            amount -= level * wanted[name][0]
        open_ = {name for name in open_ if wanted[name][1] - given[name] > 1e-9}
    return given
