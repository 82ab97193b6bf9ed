"""Synthetic traces, deterministic by seed, modelled on published workloads of training clusters.

Sizes follow Jeon et al., *Analysis of Large-Scale Multi-Tenant GPU Clusters for DNN Training Workloads* (USENIX ATC
2019), where most jobs take one GPU and few take eight; run times are log-normal there and in Weng et al., *MLaaS in the
Wild* (NSDI 2022), with medians of minutes and tails of days.
"""

import math
import random
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from app.domain.scheduling.fair_share import DeviceQuota, ProjectQuota
from app.domain.scheduling.resources import Device, GpuType, NodeCapacity, Request
from simulation.trace import ReplayCluster, TraceJob

SIZES: Mapping[int, float] = MappingProxyType({1: 0.62, 2: 0.14, 4: 0.13, 8: 0.11})
LONGEST_SECONDS = 3 * 86_400.0
GPU_MEMORY_MB = 81_920


@dataclass(frozen=True, kw_only=True)
class Workload:
    """Parameters of a synthetic workload. ``load`` is arriving work relative to the capacity of the nodes."""

    seed: int = 0
    jobs: int = 1000
    nodes: int = 10
    gpus: int = 8  # of each node
    gpu_types: tuple[str, ...] = ("h100",)  # of the nodes, in turn
    load: float = 0.9
    median_seconds: float = 1800.0
    sigma: float = 1.5  # of the logarithm of the run time
    # Project → (fraction of the jobs, deserved fraction of the GPUs).
    projects: Mapping[str, tuple[float, float]] = field(
        default_factory=lambda: MappingProxyType({"vision": (0.5, 0.3), "speech": (0.3, 0.4), "search": (0.2, 0.3)})
    )
    preemptible: float = 0.6  # fraction of the jobs
    limited: float = 0.5  # fraction of the jobs with a maximum runtime
    parts: float = 0.05  # fraction of the jobs that take half a GPU
    wide: float = 0.0  # fraction of the whole-node jobs that take two or four nodes


def make_cluster(workload: Workload) -> ReplayCluster:
    """Nodes and project quotas of the workload."""
    nodes = [_node(workload, number) for number in range(workload.nodes)]
    gpus = workload.nodes * workload.gpus
    quotas = {
        name: ProjectQuota(devices={"cuda": DeviceQuota(deserved=round(deserved * gpus))})
        for name, (_, deserved) in workload.projects.items()
    }
    return ReplayCluster(nodes=nodes, quotas=quotas)


def make_trace(workload: Workload) -> list[TraceJob]:
    """Jobs arriving as a Poisson process, twice as many by day as by night."""
    chance = random.Random(workload.seed)  # noqa: S311 – a workload, no secret
    jobs = [_job(workload, chance, number) for number in range(workload.jobs)]
    work = sum(job.seconds * job.request.amount for job in jobs)
    span = work / (workload.load * workload.nodes * workload.gpus)
    # The span follows from the drawn work, not from its mean: a few long jobs are a large part of it.
    at = sorted(_by_day(chance.uniform(0, span)) for _ in jobs)
    return [replace(job, arrives_at=round(when, 3)) for job, when in zip(jobs, at, strict=True)]


def _by_day(seconds: float) -> float:
    """Warp time so that noon is twice as busy as midnight."""
    return seconds + 86_400 / (6 * math.pi) * math.sin(2 * math.pi * seconds / 86_400)


def _node(workload: Workload, number: int) -> NodeCapacity:
    kind = workload.gpu_types[number % len(workload.gpu_types)]
    devices = tuple(Device(index=index, type=kind, memory_mb=GPU_MEMORY_MB) for index in range(workload.gpus))
    return NodeCapacity(
        name=f"n{number:03}",
        devices=devices,
        free=frozenset(range(workload.gpus)),
        cpu_cores=12 * workload.gpus,
        ram_mb=131_072 * workload.gpus,
    )


def _job(workload: Workload, chance: random.Random, number: int) -> TraceJob:
    names = list(workload.projects)
    project = chance.choices(names, [workload.projects[name][0] for name in names])[0]
    sizes = [size for size in SIZES if size <= workload.gpus]
    size = chance.choices(sizes, [SIZES[each] for each in sizes])[0]
    is_wide = workload.wide > 0 and size == workload.gpus and chance.random() < workload.wide
    nodes = chance.choice((2, 4)) if is_wide else 1
    share = 50 if size == 1 and chance.random() < workload.parts / SIZES[1] else 100
    seconds = min(LONGEST_SECONDS, chance.lognormvariate(math.log(workload.median_seconds), workload.sigma))
    limit = seconds * chance.uniform(1.1, 3.0) if chance.random() < workload.limited else None
    kinds = tuple(GpuType(kind) for kind in workload.gpu_types[:1]) if chance.random() < 0.33 else ()
    return TraceJob(
        job_id=f"j{number:06}",
        arrives_at=0.0,
        seconds=round(seconds, 1),
        project=project,
        request=Request(
            node_count=min(nodes, workload.nodes),
            device_count=size,
            device_kind="cuda",
            gpu_share=share,
            cpu_cores=4 * size,
            ram_min_mb=32_768 * size,
            gpu_types=kinds if len(workload.gpu_types) > 1 else (),
        ),
        priority=chance.choices((2, 5, 8), (0.25, 0.6, 0.15))[0],
        is_preemptible=chance.random() < workload.preemptible,
        max_runtime_seconds=None if limit is None else float(math.ceil(limit)),
    )
