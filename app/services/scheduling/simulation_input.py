"""The idle cluster as input of the simulator: ready nodes, quotas and queue weights."""

from dataclasses import replace

from sqlalchemy import select
from sqlalchemy.orm import Session

from app.domain.scheduling.fair_share import quota_of
from app.domain.scheduling.resources import NOTHING, NodeCapacity
from app.models import Project, Queue
from app.services.nodes import registry
from app.simulation.trace import Cluster


def empty_cluster(session: Session) -> Cluster:
    """Leaves out limits and pauses of queues, and the usage of projects in this month."""
    quotas = {row.name: quota_of(row.quota) for row in session.execute(select(Project.name, Project.quota))}
    weights = session.execute(select(Queue.name, Queue.weight).where(Queue.weight.is_not(None)))
    return Cluster(
        nodes=[_emptied(node) for node in registry.capacities(session)],
        quotas=quotas,
        queue_weights={row.name: row.weight for row in weights},
    )


def _emptied(node: NodeCapacity) -> NodeCapacity:
    free = frozenset(device.index for device in node.devices) - node.out_of_service
    return replace(node, free=free, parts={}, held=NOTHING, active_jobs=0)
