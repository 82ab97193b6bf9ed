"""The cluster as it would be if nothing ran, for replays: its ready nodes, the quotas and the queues' weights."""

from dataclasses import replace

from sqlalchemy import select
from sqlalchemy.orm import Session

from app.domain.scheduling.fair_share import quota_of
from app.domain.scheduling.resources import NOTHING, NodeCapacity
from app.models import Project, Queue
from app.services.nodes import registry
from app.simulation.trace import Cluster


def empty_cluster(session: Session) -> Cluster:
    """Queues' limits and pauses, and what projects have used this month, are not part of it."""
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
