"""What projects may use of the devices, and who is served next: shares as Run:ai has them, all of it pure.

A project's ``deserved`` devices are its own whenever it asks for them. What others of theirs they leave is lent by
weight: of two projects beyond what they deserve, the one that uses less for its weight is served first.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

from app.domain.errors import InvalidRequest

KINDS = {"cuda": "gpus", "cpu": "cpu_slots"}  # of a request → as quotas name the devices
_SAID = {"cuda": "GPUs", "cpu": "CPU slots"}


@dataclass(frozen=True, kw_only=True)
class DeviceQuota:
    """A project's part of the devices of one kind; None: no guarantee, no limit."""

    deserved: int | None = None
    limit: int | None = None
    over_quota_weight: float = 1.0

    @property
    def most(self) -> int | None:
        """How many the project may use in all; None: any number."""
        bounds = [self.limit] if self.limit is not None else []
        if self.over_quota_weight == 0:
            bounds.append(self.deserved or 0)
        return min(bounds, default=None)


@dataclass(frozen=True, kw_only=True)
class ProjectQuota:
    """All limits of a project; None is none."""

    devices: Mapping[str, DeviceQuota] = field(default_factory=lambda: MappingProxyType({}))  # by kind of request
    max_running_jobs: int | None = None
    max_waiting_jobs: int | None = None
    gpu_hours_per_month: float | None = None
    storage_gb: float | None = None

    def of(self, kind: str) -> DeviceQuota:
        return self.devices.get(kind, _ANY)


@dataclass(frozen=True, kw_only=True)
class Standing:
    """A project with what it uses now."""

    quota: ProjectQuota = field(default_factory=ProjectQuota)
    used: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))  # kind → devices
    fixed: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))  # of that, for good
    running: int = 0
    spent: str = ""  # why nothing more of it may start, whatever it asks for; from what is counted elsewhere

    def rank(self, kind: str, kept: float = 0) -> tuple[int, float]:
        """Lower is served first: below what it deserves by the part of that in use, beyond it by use per weight.

        ``kept``: so many more can be used by nobody else.
        """
        quota, used = self.quota.of(kind), self.used.get(kind, 0) + kept
        deserved = quota.deserved or 0
        if used < deserved:
            return 0, used / deserved
        # A weight of 0 starts nothing here; it only must not divide.
        return 1, max(0.0, used - deserved) / (quota.over_quota_weight or 1.0)

    def stopped(self, project: str) -> str:
        """Why nothing of the project may start, whatever it asks for; "" when something may."""
        if self.spent:
            return self.spent
        most = self.quota.max_running_jobs
        if most is not None and self.running >= most:
            return f"the project {project} runs {self.running} of at most {most} jobs"
        return ""

    def is_deserved(self, kind: str, count: float) -> bool:
        """Whether so many more are the project's own."""
        return _beyond(self.used.get(kind, 0) + count, self.quota.of(kind).deserved or 0) == 0

    def excess(self, kind: str, count: float) -> float:
        """How many devices the project must give up before so many more are within its quota."""
        most = self.quota.of(kind).most
        return 0.0 if most is None else _beyond(self.used.get(kind, 0) + count, most)

    def is_fixed_beyond(self, kind: str, count: float) -> bool:
        """Whether so many more that can't be taken back would be more than what the project deserves.

        Where it deserves something, nothing else is lent for good: what is lent must be able to come back.
        """
        deserved = self.quota.of(kind).deserved
        return deserved is not None and _beyond(self.fixed.get(kind, 0) + count, deserved) > 0

    def borrowed(self, kind: str, *, promised: float) -> float:
        """What it has beyond what it deserves, when so much of its use is only promised."""
        return _beyond(self.used.get(kind, 0) - promised, self.quota.of(kind).deserved or 0)

    def with_one_more(self, kind: str, count: float, *, preemptible: bool) -> "Standing":
        fixed = self.fixed if preemptible else {**self.fixed, kind: self.fixed.get(kind, 0) + count}
        used = {**self.used, kind: self.used.get(kind, 0) + count}
        return replace(self, used=used, fixed=fixed, running=self.running + 1)

    def with_one_less(self, kind: str, count: float, *, preemptible: bool) -> "Standing":
        used = {**self.used, kind: round(self.used.get(kind, 0) - count, 6)}
        fixed = self.fixed if preemptible else {**self.fixed, kind: round(self.fixed.get(kind, 0) - count, 6)}
        return replace(self, used=used, fixed=fixed, running=self.running - 1)


def refusal(
    project: str, standing: Standing, kind: str, count: float, *, preemptible: bool, promised: float = 0
) -> str:
    """Why the quota keeps a job of the project from starting now; "" when it does not.

    ``promised``: so much of what it uses is only being cleared for other jobs of it.
    """
    if stopped := standing.stopped(project):
        return stopped
    quota, used = standing.quota.of(kind), standing.used.get(kind, 0)
    if not preemptible and standing.is_fixed_beyond(kind, count):
        return (
            f"jobs of the project {project} that are not preemptible use {standing.fixed.get(kind, 0):g} of the "
            f"{quota.deserved} {_SAID[kind]} that it deserves, and the job needs {count:g}: {_way_beyond(quota)}"
        )
    if standing.excess(kind, count) == 0:
        return ""
    coming = f" ({promised:g} more are being cleared for it)" if promised else ""
    said = f"the project {project} uses {used - promised:g} of at most {quota.most} {_SAID[kind]}{coming}"
    way_out = f": {_way_beyond(quota)}" if quota.most != quota.limit else ""
    return f"{said}, and the job needs {count:g}{way_out}"


def never_fits(project: str, quota: ProjectQuota, kind: str, count: float, *, preemptible: bool) -> str:
    """Why the job can never start with this quota, and the way out; "" when it can."""
    of_kind = quota.of(kind)
    bounds = [bound for bound in (of_kind.most, None if preemptible else of_kind.deserved) if bound is not None]
    most = min(bounds, default=None)
    if most is None or count <= most:
        return ""
    said = f"the project {project} may use at most {most} {_SAID[kind]} at a time"
    said += "" if most == of_kind.most else " for jobs that are not preemptible"
    way_out = "have the project's quota raised" if most == of_kind.limit else _way_beyond(of_kind)
    return f"{said}, and the job needs {count:g}: ask for fewer, or {way_out}"


def quota_of(document: Mapping[str, Any]) -> ProjectQuota:
    """From the form in which it is stored and shown; what is missing there is no limit."""
    devices = {kind: DeviceQuota(**document[name]) for kind, name in KINDS.items() if document.get(name)}
    amounts = {
        name: document.get(name)
        for name in ("max_running_jobs", "max_waiting_jobs", "gpu_hours_per_month", "storage_gb")
    }
    return ProjectQuota(devices=devices, **amounts)


def merged(stored: Mapping[str, Any], wanted: Mapping[str, Any]) -> dict[str, Any]:
    """The stored form with what is wanted changed: None takes a limit away, what is not named stays.

    Raises InvalidRequest for a guarantee beyond the limit.
    """
    changed = {**stored, **wanted}
    for name in KINDS.values():
        devices = {**(stored.get(name) or {}), **(wanted.get(name) or {})}
        changed[name] = {key: value for key, value in devices.items() if value is not None}
    changed = {name: value for name, value in changed.items() if value not in (None, {})}
    for name in KINDS.values():
        quota = DeviceQuota(**changed.get(name, {}))
        if quota.limit is not None and (quota.deserved or 0) > quota.limit:
            raise InvalidRequest(
                f"{name}.deserved is {quota.deserved} and {name}.limit is {quota.limit}: what a project deserves "
                "can't be more than it may use",
                field=f"quota.{name}.deserved",
            )
    return changed


def document_of(quota: ProjectQuota) -> dict[str, Any]:
    """Everything, also what is not limited."""
    return {
        **{name: vars(quota.of(kind)) for kind, name in KINDS.items()},
        "max_running_jobs": quota.max_running_jobs,
        "max_waiting_jobs": quota.max_waiting_jobs,
        "gpu_hours_per_month": quota.gpu_hours_per_month,
        "storage_gb": quota.storage_gb,
    }


def _way_beyond(quota: DeviceQuota) -> str:
    if quota.over_quota_weight == 0:
        return "have what it deserves raised; with over_quota_weight 0 nothing is lent to it"
    return "set preemptible to true, for only such jobs are lent more"


def _beyond(amount: float, bound: float) -> float:
    # Parts of devices are hundredths, and sums of them as floats are not exact.
    return max(0.0, round(amount - bound, 6))


_ANY = DeviceQuota()
