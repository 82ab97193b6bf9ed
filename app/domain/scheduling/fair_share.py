"""Fair share: what projects may use of the devices and which is served next, with the semantics of Run:ai. Pure.

A project's ``deserved`` devices are guaranteed. Devices that other projects leave unused are lent by weight: of two
projects above their deserved quota, the one with the lower usage per weight is served first.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

from app.domain.errors import InvalidRequest

KINDS = {"cuda": "gpus", "cpu": "cpu_slots"}  # device kind of a request → its name in quotas
_NOUNS = {"cuda": "GPUs", "cpu": "CPU slots"}


@dataclass(frozen=True, kw_only=True)
class DeviceQuota:
    """A project's quota for one kind of device; None means no guarantee and no limit."""

    deserved: int | None = None
    limit: int | None = None
    over_quota_weight: float = 1.0

    @property
    def most(self) -> int | None:
        """Upper bound for the project's devices of this kind; None means unlimited."""
        bounds = [self.limit] if self.limit is not None else []
        if self.over_quota_weight == 0:
            bounds.append(self.deserved or 0)
        return min(bounds, default=None)


@dataclass(frozen=True, kw_only=True)
class ProjectQuota:
    """All limits of a project; None means unlimited."""

    devices: Mapping[str, DeviceQuota] = field(default_factory=lambda: MappingProxyType({}))  # by kind of request
    max_running_jobs: int | None = None
    max_waiting_jobs: int | None = None
    gpu_hours_per_month: float | None = None
    storage_gb: float | None = None

    def of(self, kind: str) -> DeviceQuota:
        return self.devices.get(kind, _ANY)


@dataclass(frozen=True, kw_only=True)
class QuotaUsage:
    """A project's quota and current usage."""

    quota: ProjectQuota = field(default_factory=ProjectQuota)
    used: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))  # kind → devices
    fixed: Mapping[str, float] = field(
        default_factory=lambda: MappingProxyType({})
    )  # of ``used``, by jobs that are not preemptible
    running: int = 0
    spent: str = ""  # why no job of the project may start at all (hours or storage used up); computed by the caller

    def serving_key(self, kind: str, reserved: float = 0) -> tuple[int, float]:
        """Lower is served first: below the deserved quota by the fraction in use, above it by usage per weight.

        ``reserved`` devices are reserved for the project and count as used.
        """
        quota, used = self.quota.of(kind), self.used.get(kind, 0) + reserved
        deserved = quota.deserved or 0
        if used < deserved:
            return 0, used / deserved
        # With weight 0 nothing starts above the deserved quota; this only avoids a division by zero.
        return 1, max(0.0, used - deserved) / (quota.over_quota_weight or 1.0)

    def stopped(self, project: str) -> str:
        """Why no job of the project may start, whatever it requests; "" when jobs may start."""
        if self.spent:
            return self.spent
        most = self.quota.max_running_jobs
        if most is not None and self.running >= most:
            return f"the project {project} runs {self.running} of at most {most} jobs"
        return ""

    def is_deserved(self, kind: str, count: float) -> bool:
        """Whether ``count`` more devices stay within the deserved quota."""
        return _beyond(self.used.get(kind, 0) + count, self.quota.of(kind).deserved or 0) == 0

    def excess(self, kind: str, count: float) -> float:
        """How many devices the project must release before ``count`` more are within its quota."""
        most = self.quota.of(kind).most
        return 0.0 if most is None else _beyond(self.used.get(kind, 0) + count, most)

    def is_fixed_beyond(self, kind: str, count: float) -> bool:
        """Whether ``count`` more non-preemptible devices would exceed the deserved quota.

        Only preemptible jobs may borrow where there is a deserved quota: borrowed devices must be reclaimable.
        """
        deserved = self.quota.of(kind).deserved
        return deserved is not None and _beyond(self.fixed.get(kind, 0) + count, deserved) > 0

    def borrowed(self, kind: str, *, clearing: float) -> float:
        """Usage above the deserved quota, without the ``clearing`` part that is not in use yet."""
        return _beyond(self.used.get(kind, 0) - clearing, self.quota.of(kind).deserved or 0)

    def with_one_more(
        self, kind: str, count: float, *, preemptible: bool, others: Mapping[str, float] = MappingProxyType({})
    ) -> "QuotaUsage":
        """With a job that has ``count`` devices of this kind, and ``others`` of other kinds."""
        return self._changed({kind: count, **others}, 1, preemptible=preemptible)

    def with_one_less(
        self, kind: str, count: float, *, preemptible: bool, others: Mapping[str, float] = MappingProxyType({})
    ) -> "QuotaUsage":
        return self._changed({kind: count, **others}, -1, preemptible=preemptible)

    def _changed(self, counts: Mapping[str, float], sign: int, *, preemptible: bool) -> "QuotaUsage":
        used, fixed = dict(self.used), dict(self.fixed)
        for kind, count in counts.items():
            for usage in (used,) if preemptible else (used, fixed):
                usage[kind] = round(usage.get(kind, 0) + sign * count, 6)
        return replace(self, used=used, fixed=fixed, running=self.running + sign)


def refusal(
    project: str, standing: QuotaUsage, kind: str, count: float, *, preemptible: bool, clearing: float = 0
) -> str:
    """Why the quota does not admit a job of the project now; "" when it does.

    ``clearing``: the part of its usage that is still being cleared for other jobs of the project.
    """
    if stopped := standing.stopped(project):
        return stopped
    quota, used = standing.quota.of(kind), standing.used.get(kind, 0)
    if not preemptible and standing.is_fixed_beyond(kind, count):
        return (
            f"jobs of the project {project} that are not preemptible use {standing.fixed.get(kind, 0):g} of the "
            f"{quota.deserved} {_NOUNS[kind]} that it deserves, and the job needs {count:g}: {_way_beyond(quota)}"
        )
    if standing.excess(kind, count) == 0:
        return ""
    coming = f" ({clearing:g} more are being cleared for it)" if clearing else ""
    reason = f"the project {project} uses {used - clearing:g} of at most {quota.most} {_NOUNS[kind]}{coming}"
    way_out = f": {_way_beyond(quota)}" if quota.most != quota.limit else ""
    return f"{reason}, and the job needs {count:g}{way_out}"


def never_fits(project: str, quota: ProjectQuota, kind: str, count: float, *, preemptible: bool) -> str:
    """Why the job can never start with this quota, and what to change; "" when it can."""
    of_kind = quota.of(kind)
    bounds = [bound for bound in (of_kind.most, None if preemptible else of_kind.deserved) if bound is not None]
    most = min(bounds, default=None)
    if most is None or count <= most:
        return ""
    reason = f"the project {project} may use at most {most} {_NOUNS[kind]} at a time"
    reason += "" if most == of_kind.most else " for jobs that are not preemptible"
    way_out = "have the project's quota raised" if most == of_kind.limit else _way_beyond(of_kind)
    return f"{reason}, and the job needs {count:g}: ask for fewer, or {way_out}"


def quota_of(document: Mapping[str, Any]) -> ProjectQuota:
    """Parse the stored form, which is also shown to users; a missing key means unlimited."""
    devices = {kind: DeviceQuota(**document[name]) for kind, name in KINDS.items() if document.get(name)}
    amounts = {
        name: document.get(name)
        for name in ("max_running_jobs", "max_waiting_jobs", "gpu_hours_per_month", "storage_gb")
    }
    return ProjectQuota(devices=devices, **amounts)


def merged(stored: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Merge changes into the stored form: None removes a limit, keys that are not named stay.

    Raises InvalidRequest for a guarantee beyond the limit.
    """
    changed = {**stored, **changes}
    for name in KINDS.values():
        devices = {**(stored.get(name) or {}), **(changes.get(name) or {})}
        changed[name] = {key: value for key, value in devices.items() if value is not None}
    changed = {name: value for name, value in changed.items() if value not in (None, {}, [])}
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
    """The full form, including limits that are not set."""
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
    # Shares are hundredths of a device; rounding hides float error in their sums.
    return max(0.0, round(amount - bound, 6))


_ANY = DeviceQuota()
