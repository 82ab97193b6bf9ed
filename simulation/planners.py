"""The policies to compare: settings of the real planner, and naive ones as baselines."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from math import inf
from types import MappingProxyType

from app.domain.scheduling.filters import choose_devices, share_on
from app.domain.scheduling.gang_placement import GangPart, alike_in
from app.domain.scheduling.placement import Placement
from app.domain.scheduling.planner import Plan, Planning, SchedulingPolicy
from app.domain.scheduling.planning_pass import run_pass
from app.domain.scheduling.queue_order import QueuedJob
from app.domain.scheduling.resources import NodeCapacity
from app.domain.scheduling.roles.packing import pack
from app.domain.scheduling.scoring import Weights
from simulation.replay import Planner
from simulation.site import PassInput


@dataclass(frozen=True, kw_only=True)
class NamedPolicy:
    """A policy of the comparison; ``planner`` creates it from the configured policy."""

    meaning: str
    planner: Callable[[SchedulingPolicy], Planner]


def planned(policy: SchedulingPolicy, *, may_preempt: bool = True) -> Planner:
    """The coordinator's planner with this policy."""

    def decide(view: PassInput) -> Plan:
        planning = Planning(view.nodes, view.accounts, view.running, replace(policy, now=view.now))
        return run_pass(planning, view.reserved, view.windows())

    return Planner(decide=decide, wakes_after_seconds=policy.reserve_after_seconds, may_preempt=may_preempt)


def first_come(*, passing: bool) -> Planner:
    """First come, first served on the first nodes that fit: no quotas, fair share, priorities or preemption.

    A job that does not fit blocks later ones, unless ``passing``; nothing is ever reserved.
    """

    def decide(view: PassInput) -> Plan:
        nodes = {node.name: node for node in sorted(view.nodes, key=lambda node: node.name)}
        placements: list[Placement] = []
        line = sorted((job for line in view.lines.values() for job in line), key=lambda job: (job.since, job.job_id))
        without = set()
        for job in line:
            placement = None if job.request in without else _first_fit(job, nodes)
            if placement is not None:
                placements.append(placement)
            elif passing:
                without.add(job.request)
            else:
                break
        return Plan(placements=tuple(placements), pending_reasons={}, nodes=tuple(nodes.values()))

    return Planner(decide=decide)


def _first_fit(job: QueuedJob, nodes: dict[str, NodeCapacity]) -> Placement | None:
    request = job.request
    if request.roles:
        packed = pack(request, nodes.values())
        return None if packed is None else _given(job, list(packed), nodes)
    found: dict[str, list[GangPart]] = {}  # device type → on the first nodes by name
    for node in nodes.values():
        for alike in alike_in(request, node):
            devices = choose_devices(request, alike)
            if devices is not None:
                parts = found.setdefault(devices[0].type if request.is_gang else "", [])
                parts.append(GangPart(node=node.name, devices=devices))
                if len(parts) == request.node_count:
                    return _given(job, parts, nodes)
    return None


def _given(job: QueuedJob, parts: list[GangPart], nodes: dict[str, NodeCapacity]) -> Placement:
    placement = Placement.of(job.job_id, parts)
    share = share_on(job.request, placement.devices[0])
    for part in parts:
        held = nodes[part.node].held + part.quantities(job.request)
        nodes[part.node] = replace(nodes[part.node].given((d.index for d in part.devices), share), held=held)
    return replace(placement, share=share)


def _packing(weights: Weights) -> Weights:
    return {**weights, "active_jobs": 0.0, "pack": 100.0}


POLICIES: Mapping[str, NamedPolicy] = MappingProxyType(
    {
        "default": NamedPolicy(meaning="as it is configured", planner=planned),
        "pack": NamedPolicy(
            meaning="fuller nodes first, instead of those with fewer jobs",
            planner=lambda policy: planned(replace(policy, weights=_packing(policy.weights))),
        ),
        "no-reserve": NamedPolicy(
            meaning="no node is ever reserved for a pending job",
            planner=lambda policy: planned(replace(policy, reserve_after_seconds=inf)),
        ),
        "no-preempt": NamedPolicy(
            meaning="no job is preempted, even if it is preemptible",
            planner=lambda policy: planned(policy, may_preempt=False),
        ),
        "first-fit": NamedPolicy(
            meaning="naive: first job that fits, no quotas or priorities", planner=lambda _: first_come(passing=True)
        ),
        "fifo": NamedPolicy(meaning="naive: strictly in order of arrival", planner=lambda _: first_come(passing=False)),
    }
)
