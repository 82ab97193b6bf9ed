"""Small clusters and jobs for replays: a test names only what it is about."""

from collections.abc import Iterable, Mapping
from itertools import count
from types import MappingProxyType
from typing import Any

from app.domain.scheduling.fair_share import DeviceQuota, ProjectQuota
from app.domain.scheduling.planner import SchedulingPolicy
from app.domain.scheduling.resources import Device, NodeCapacity, Request
from simulation.jobs import Behaviour, JobResult
from simulation.planners import POLICIES
from simulation.replay import Replay, replay
from simulation.trace import ReplayCluster, TraceJob

# Nothing but the work itself takes time.
IDEAL = Behaviour(start_seconds=0.0, save_seconds=0.0)
RESERVE_AFTER = 1800.0
_NUMBERS = count()


def make_node(name: str = "n", *, gpus: int = 8, kind: str = "h100") -> NodeCapacity:
    devices = tuple(Device(index=index, type=kind, memory_mb=81_920) for index in range(gpus))
    return NodeCapacity(name=name, devices=devices, free=frozenset(range(gpus)), cpu_cores=128, ram_mb=1_000_000)


def make_site(*gpus: int, quotas: Mapping[str, Any] = MappingProxyType({})) -> ReplayCluster:
    """Nodes with so many GPUs each; ``quotas``: project → what its ``gpus`` are limited by."""
    return ReplayCluster(
        nodes=[make_node(f"n{number}", gpus=each) for number, each in enumerate(gpus)],
        quotas={name: ProjectQuota(devices={"cuda": DeviceQuota(**quota)}) for name, quota in quotas.items()},
    )


def make_traced(at: float = 0.0, seconds: float = 100.0, *, gpus: int = 1, share: int = 100, **more: Any) -> TraceJob:
    """One job; ``job_id`` counts up unless it is named."""
    values = {"job_id": f"job{next(_NUMBERS):06}", **more}
    request = Request(device_count=gpus, device_kind="cuda", gpu_share=share)
    return TraceJob(arrives_at=at, seconds=seconds, request=request, **values)


def replayed(
    trace: Iterable[TraceJob], site: ReplayCluster, policy: str = "default", behaviour: Behaviour = IDEAL, **more: Any
) -> Replay:
    planner = POLICIES[policy].planner(SchedulingPolicy(reserve_after_seconds=RESERVE_AFTER))
    return replay(trace, site, planner, behaviour, **more)


def outcomes(done: Replay) -> dict[str, JobResult]:
    return {outcome.job.job_id: outcome for outcome in done.outcomes}


def spans(outcome: JobResult) -> list[tuple[float, float]]:
    return [(stay.started_at, stay.ended_at) for stay in outcome.stays]
