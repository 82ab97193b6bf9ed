"""Snapshot → placements: first fit by priority, then by age. Pure; the scheduling service applies what it says."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from app.domain.placement import choose_devices, could_fit, explain
from app.domain.resources import Device, NodeCapacity, Request


@dataclass(frozen=True, kw_only=True)
class QueuedJob:
    """A job that waits for devices; ``position`` is its place in the order of submission to the queue."""

    job_id: str
    priority: int
    position: int
    request: Request


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


def plan(jobs: Sequence[QueuedJob], nodes: Sequence[NodeCapacity]) -> Plan:
    """Highest priority first, then oldest; each takes the first node (by name) with enough fitting free devices."""
    free = {node.name: node for node in sorted(nodes, key=lambda n: n.name)}
    placements: list[Placement] = []
    reasons: dict[str, str] = {}
    for job in sorted(jobs, key=lambda j: (-j.priority, j.position)):
        placement = _first_fit(job, free)
        if placement is None:
            reasons[job.job_id] = explain(job.request, list(free.values()))
            continue
        placements.append(placement)
        node = free[placement.node]
        free[node.name] = replace(
            node, free=node.free - {d.index for d in placement.devices}, held=node.held + job.request.quantities
        )
    return Plan(placements=tuple(placements), pending_reasons=reasons, nodes=tuple(free.values()))


def _first_fit(job: QueuedJob, nodes: dict[str, NodeCapacity]) -> Placement | None:
    for node in nodes.values():
        if could_fit(job.request, node):
            continue
        devices = choose_devices(job.request, node)
        if devices is not None:
            return Placement(job_id=job.job_id, node=node.name, devices=devices)
    return None
