"""Run:ai's metrics of a workload, from its metric series and attempts. Pure."""

from bisect import bisect_right
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from app.domain.spec.model import ResourceConfig
from app.domain.spec.roles import JobRole
from app.schemas.strict_fields import on_the_wire
from app.services.rows import Attempt

# Metric type → native series, and the factor to Run:ai's unit.
SERIES: dict[str, tuple[str, float]] = {
    "GPU_UTILIZATION": ("gpu_utilization", 1),
    "GPU_MEMORY_USAGE_BYTES": ("gpu_memory_mb", 2**20),
    "CPU_USAGE_CORES": ("cpu_percent", 0.01),
    "CPU_MEMORY_USAGE_BYTES": ("memory_mb", 2**20),
}
REQUESTS: dict[str, tuple[str, float]] = {
    "GPU_MEMORY_REQUEST_BYTES": ("gpu_memory_request_mb", 2**20),
    "CPU_REQUEST_CORES": ("cpu_cores", 1),
    "CPU_MEMORY_REQUEST_BYTES": ("ram_min_mb", 2**20),
}


class MeasurementPoint(NamedTuple):
    at: datetime
    value: float


class Window(NamedTuple):
    """``samples`` times at equal distances, the last one at the end."""

    start: datetime
    end: datetime
    samples: int

    @property
    def distance(self) -> timedelta:
        return (self.end - self.start) / max(1, self.samples)

    def moments(self) -> list[datetime]:
        return [self.start + self.distance * number for number in range(1, self.samples + 1)]


def measured(kind: str, points: Sequence[MeasurementPoint], window: Window, *, freshest: timedelta) -> dict[str, Any]:
    """The newest value at each time, unless it is older than both ``freshest`` and the sample distance."""
    times = [point.at for point in points]
    oldest = max(freshest, window.distance)
    values = []
    for moment in window.moments():
        number = bisect_right(times, moment)
        if number and moment - times[number - 1] <= oldest:
            values.append(_value(points[number - 1].value * SERIES[kind][1], moment))
    return _measurement(kind, values)


def counted(kind: str, attempts: Sequence[Attempt], window: Window, roles: Sequence[JobRole] = ()) -> dict[str, Any]:
    """Number of pods or GPUs of the workload at each time."""
    without_gpus = {role.role for role in roles if role.resource_config.device_type == "cpu"}
    count = _COUNTS[kind]
    return _measurement(
        kind,
        [_value(sum(count(each, moment, without_gpus) for each in attempts), moment) for moment in window.moments()],
    )


def requested(kind: str, resources: ResourceConfig, window: Window, roles: Sequence[JobRole] = ()) -> dict[str, Any]:
    """``resources`` are the job's, those of ``roles`` are added up."""
    field, unit = REQUESTS[kind]
    of_roles = sum(role.count * getattr(role.resource_config, field, 0) for role in roles)
    amount = float(of_roles if roles else getattr(resources, field) or 0)
    return _measurement(kind, [_value(amount * unit, moment) for moment in window.moments()] if amount else [])


def _pods(attempt: Attempt, moment: datetime, _roles: Collection[str]) -> float:
    return _pods_of(attempt) if _spans(attempt.created_at, attempt, moment) else 0


def _running_pods(attempt: Attempt, moment: datetime, _roles: Collection[str]) -> float:
    return _pods_of(attempt) if _spans(attempt.started_at, attempt, moment) else 0


def _pods_of(attempt: Attempt) -> int:
    """One for each node, or for each instance of its roles."""
    return len(attempt.node_names if attempt.instances is None else attempt.instances)


def _gpus(attempt: Attempt, moment: datetime, without_gpus: Collection[str]) -> float:
    if attempt.device_type == "cpu" or not _spans(attempt.created_at, attempt, moment):
        return 0
    if attempt.instances is not None:
        return sum(len(each["devices"]) for each in attempt.instances if each["role"] not in without_gpus)
    return sum(map(len, attempt.device_indices)) * attempt.device_share / 100


_COUNTS: dict[str, Callable[[Attempt, datetime, Collection[str]], float]] = {
    "POD_COUNT": _pods,
    "RUNNING_POD_COUNT": _running_pods,
    "GPU_ALLOCATION": _gpus,
}
KINDS = (*SERIES, *REQUESTS, *_COUNTS)


def _spans(begin: datetime | None, attempt: Attempt, moment: datetime) -> bool:
    return begin is not None and begin <= moment and (attempt.ended_at is None or moment < attempt.ended_at)


def _value(value: float, moment: datetime) -> dict[str, str]:
    return {"value": f"{value:.6g}" if value < 1e6 else str(round(value)), "timestamp": on_the_wire(moment)}


def _measurement(kind: str, values: Sequence[Mapping[str, str]]) -> dict[str, Any]:
    return {"type": kind, "labels": {}, "values": list(values)}
