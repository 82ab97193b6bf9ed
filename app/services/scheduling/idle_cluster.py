"""The cluster as if no job ran: ready nodes, quotas and queue weights."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from sqlalchemy import select
from sqlalchemy.orm import Session

from app.domain.scheduling.fair_share import ProjectQuota, quota_of
from app.domain.scheduling.resources import NOTHING, NodeCapacity
from app.models import Project, Queue
from app.services.nodes import registry


@dataclass(frozen=True)
class IdleCluster:
    """Input of the simulator."""

    nodes: list[NodeCapacity]
    quotas: Mapping[str, ProjectQuota]
    queue_weights: Mapping[str, float]


def idle_cluster(session: Session) -> IdleCluster:
    """Leaves out limits and pauses of queues, and the usage of projects in this month."""
    quotas = {row.name: quota_of(row.quota) for row in session.execute(select(Project.name, Project.quota))}
    weights = session.execute(select(Queue.name, Queue.weight).where(Queue.weight.is_not(None)))
    return IdleCluster(
        nodes=[_emptied(node) for node in registry.capacities(session)],
        quotas=quotas,
        queue_weights={row.name: row.weight for row in weights},
    )


def _emptied(node: NodeCapacity) -> NodeCapacity:
    free = frozenset(device.index for device in node.devices) - node.out_of_service
    return replace(node, free=free, parts={}, held=NOTHING, active_jobs=0)
