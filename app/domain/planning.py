"""Snapshot → placements: first fit by priority, then by age. Pure; the scheduling service applies what it says."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from app.domain.placement import choose_devices, could_fit, explain
from app.domain.resources import Device, NodeCapacity, Request


@dataclass(frozen=True, kw_only=True)
class QueuedJob:
    """A job that waits for devices; ``position`` is its place in the order of submission to the queue."""

    job_id: str
    priority: int
    position: int
    request: Request
    queue: str = ""


@dataclass(frozen=True, kw_only=True)
class Placement:
    job_id: str
    node: str
    devices: tuple[Device, ...]


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Who starts where now, and for everybody else why not."""

    placements: tuple[Placement, ...]
    pending_reasons: dict[str, str]
    nodes: tuple[NodeCapacity, ...]  # as they are after the placements
    room: Mapping[str, int] = field(default_factory=dict)  # the same of the queues


def plan(
    jobs: Sequence[QueuedJob], nodes: Sequence[NodeCapacity], room: Mapping[str, int] = MappingProxyType({})
) -> Plan:
    """Highest priority first, then oldest; each takes the first node (by name) with enough fitting free devices.

    ``room`` says how many more jobs may start from a queue; one that it does not name may start any number. Who waits
    for room gets no reason here: it is the queue's and holds for all of them.
    """
    free = {node.name: node for node in sorted(nodes, key=lambda n: n.name)}
    left = dict(room)
    placements: list[Placement] = []
    reasons: dict[str, str] = {}
    for job in sorted(jobs, key=lambda j: (-j.priority, j.position)):
        if left.get(job.queue, 1) <= 0:
            continue
        placement = _first_fit(job, free)
        if placement is None:
            reasons[job.job_id] = explain(job.request, list(free.values()))
            continue
        placements.append(placement)
        if job.queue in left:
            left[job.queue] -= 1
        node = free[placement.node]
        free[node.name] = replace(
            node, free=node.free - {d.index for d in placement.devices}, held=node.held + job.request.quantities
        )
    return Plan(placements=tuple(placements), pending_reasons=reasons, nodes=tuple(free.values()), room=left)


def held_back(queue: str, *, is_paused: bool, limit: int | None, running: int) -> str:
    """Why nobody in the queue starts, whatever is free; "" when somebody may."""
    if is_paused:
        return f"the queue {queue} is paused: it takes jobs and starts none until it is resumed"
    if limit is not None and running >= limit:
        return f"the queue {queue} runs {running} of at most {limit} jobs (max_running_jobs)"
    return ""


def _first_fit(job: QueuedJob, nodes: dict[str, NodeCapacity]) -> Placement | None:
    for node in nodes.values():
        if could_fit(job.request, node):
            continue
        devices = choose_devices(job.request, node)
        if devices is not None:
            return Placement(job_id=job.job_id, node=node.name, devices=devices)
    return None
