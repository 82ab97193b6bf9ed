"""What can be given away, and to whom, at this moment: the nodes and the accounts, changed by every start. Pure."""

from collections.abc import Sequence

from app.domain.scheduling.gang_index import GangChoices
from app.domain.scheduling.node_index import Choices
from app.domain.scheduling.placement import Placement
from app.domain.scheduling.preemption import Room
from app.domain.scheduling.queue_order import QueuedJob
from app.domain.scheduling.resources import NodeCapacity, Request
from app.domain.scheduling.scoring import Weights
from app.domain.scheduling.serving_order import Accounts, Ledger
from app.domain.units import WHOLE


class Giving:
    """Shared by a pass, and by what follows event by event until the next one."""

    def __init__(self, nodes: Sequence[NodeCapacity], accounts: Accounts, weights: Weights) -> None:
        self.choices = Choices(nodes, weights)
        self.gangs = GangChoices(self.choices.nodes, weights)
        self.ledger = Ledger(accounts)
        self.rooms: set[str] = set()  # nodes that are cleared or kept for somebody

    def find(self, job: QueuedJob) -> Placement | str:
        """Where it can start now on what is kept for nobody; when nowhere, why."""
        if refused := self.ledger.refusal(job) or self.ledger.held_back(job):
            return refused
        if job.request.is_gang:
            return self.gangs.place(job)
        return self.choices.best_free(job) or self.choices.why_none(job)

    def is_nowhere(self, job: QueuedJob) -> bool:
        """Whether it is known that no node has room for it."""
        return (self.gangs if job.request.is_gang else self.choices).is_nowhere(job)

    def may_start_on(self, request: Request, node: NodeCapacity) -> bool:
        """Whether it could start there now; of a gang that is known only when it is asked for."""
        return request.is_gang or self.choices.starts_on(request, node.name)

    def start(self, job: QueuedJob, placement: Placement) -> None:
        self.ledger.count(job, len(placement.parts) * len(placement.devices) * placement.share / WHOLE)
        for part in placement.parts:
            node = self.choices.nodes[part.node]
            indices = (device.index for device in part.devices)
            self.choices.change(node.with_job(indices, placement.share, job.request.quantities))

    def keep(self, room: Room) -> None:
        """Give what is free of these devices to nobody who does not give it back in time."""
        self.rooms.add(room.node)
        self.choices.keep(room)

    def look_again_at(self, node: NodeCapacity) -> dict[object, Request]:
        """The node is like this from now on; returns what was found nowhere and fits there (``asked_by``)."""
        return self.choices.look_again_at(node) | self.gangs.look_again_at(node)
