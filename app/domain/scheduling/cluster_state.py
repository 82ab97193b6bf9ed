"""Cluster state during a planning pass: free capacity per node and usage per project, updated by every start. Pure."""

from collections.abc import Sequence

from app.domain.scheduling.gang_index import GangIndex
from app.domain.scheduling.node_index import NodeIndex
from app.domain.scheduling.placement import Placement
from app.domain.scheduling.preemption import Room
from app.domain.scheduling.queue_order import QueuedJob
from app.domain.scheduling.resources import NodeCapacity, Request
from app.domain.scheduling.scoring import Weights
from app.domain.scheduling.serving_order import Accounts, PassAccounts


class ClusterState:
    """Shared by a full pass and the incremental planning between it and the next one."""

    def __init__(self, nodes: Sequence[NodeCapacity], accounts: Accounts, weights: Weights) -> None:
        self.node_index = NodeIndex(nodes, weights)
        self.gangs = GangIndex(self.node_index.nodes, weights)
        self.ledger = PassAccounts(accounts)
        self.rooms: set[str] = set()  # nodes that are being cleared or are reserved for a job

    def find(self, job: QueuedJob) -> Placement | str:
        """Return where the job can start now on unreserved devices, or why it can't."""
        if refused := self.ledger.refusal(job) or self.ledger.held_back(job):
            return refused
        if job.request.is_gang:
            return self.gangs.place(job)
        return self.node_index.best_free(job) or self.node_index.why_none(job)

    def is_unplaceable(self, job: QueuedJob) -> bool:
        """Whether the job is already known to fit on no node."""
        return (self.gangs if job.request.is_gang else self.node_index).is_unplaceable(job)

    def may_start_on(self, request: Request, node: NodeCapacity) -> bool:
        """Whether the job could start on the node now; always True for a gang, which only ``find`` can decide."""
        return request.is_gang or self.node_index.starts_on(request, node.name)

    def start(self, job: QueuedJob, placement: Placement) -> None:
        self.ledger.count(job, placement.amounts.get(job.request.device_kind, 0))
        for part in placement.parts:
            node = self.node_index.nodes[part.node]
            indices = (device.index for device in part.devices)
            amounts = part.quantities(job.request)
            self.node_index.change(node.with_job(indices, placement.share, amounts, job.request.tenant))

    def reserve(self, room: Room) -> None:
        """Reserve the free devices of the room: only jobs that end in time may still use them."""
        self.rooms.add(room.node)
        self.node_index.reserve(room)

    def refresh(self, node: NodeCapacity) -> dict[object, Request]:
        """Replace the node's state; returns the requests that fitted nowhere and fit there now, by ``request_key``."""
        return self.node_index.refresh(node) | self.gangs.refresh(node)
