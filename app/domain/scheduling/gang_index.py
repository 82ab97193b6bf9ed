"""The nodes for gangs while a plan is made: of a node that has changed it is found anew, of the others remembered."""

from collections.abc import Collection, Iterator, Mapping

from app.domain.scheduling import gang_placement
from app.domain.scheduling.filters import avoided
from app.domain.scheduling.gang_placement import Candidate, Rank
from app.domain.scheduling.placement import Placement
from app.domain.scheduling.preemption import Room
from app.domain.scheduling.queue_order import QueuedJob
from app.domain.scheduling.resources import NodeCapacity, Request
from app.domain.scheduling.running_index import Neighbours
from app.domain.scheduling.scoring import Weights
from app.domain.scheduling.serving_order import Ledger

_Asked = tuple[Request, frozenset[str]]  # and which nodes it avoids


class GangChoices:
    """``nodes`` are as they are when something is looked for; they only become fuller."""

    def __init__(self, nodes: Mapping[str, NodeCapacity], weights: Weights) -> None:
        self._nodes = nodes
        self._weights = weights
        self._known: dict[Request, dict[str, tuple[NodeCapacity, list[Candidate]]]] = {}
        self._avoided: dict[_Asked, frozenset[str]] = {}
        self._reasons: dict[_Asked, str] = {}
        self._could: dict[_Asked, bool] = {}

    def place(self, job: QueuedJob) -> Placement | str:
        """Where all of the job can start now; when nowhere, why."""
        asked = job.request, job.avoids
        if asked not in self._reasons:
            parts = gang_placement.choose(job.request, self._candidates(job), self._weights, job.no_room_on)
            if parts is not None:
                return Placement(job_id=job.job_id, node=parts[0].node, devices=parts[0].devices, others=parts[1:])
            self._reasons[asked] = gang_placement.explain(job.request, list(self._nodes.values()), self._not_given(job))
        return self._reasons[asked]

    def look_again_at(self, node: NodeCapacity) -> dict[object, Request]:
        """The node has changed; what is asked for of which it could hold a part now, and that is refused no longer."""
        reopened = [asked for asked in self._reasons if gang_placement.candidates(asked[0], node, self._weights)]
        for asked in reopened:
            del self._reasons[asked]
        return {(asked if asked[1] else asked[0]): asked[0] for asked in reopened}

    def is_nowhere(self, job: QueuedJob) -> bool:
        """Whether it is known that it can start nowhere now."""
        return (job.request, job.avoids) in self._reasons

    def could_hold(self, job: QueuedJob) -> bool:
        """Whether enough nodes that it may be given could hold it, if they were empty."""
        asked = job.request, job.avoids
        if asked not in self._could:
            self._could[asked] = gang_placement.most_alike(job.request, self._given(job)) >= job.request.node_count
        return self._could[asked]

    def rooms(self, job: QueuedJob, neighbours: Neighbours, *, on: Collection[str] | None = None) -> tuple[Room, ...]:
        """The nodes to keep for it, ``on`` only of these; none if it would not fit when everything there had ended."""
        not_given = self._not_given(job).union(job.no_room_on)
        known = self._soonest(job.request.device_count, neighbours) if on is None else ((0.0, 0, name) for name in on)
        given = ((rank, self._nodes[rank[2]]) for rank in known if rank[2] in self._nodes and rank[2] not in not_given)
        return gang_placement.rooms(job.request, given, lambda node: neighbours.room_on(job, node))

    def rooms_of_going(self, job: QueuedJob, neighbours: Neighbours) -> tuple[Room, ...]:
        """What it awaits, when those that stop there already are enough."""
        found: dict[str, list[Room]] = {}  # by device type
        nodes = [self._nodes[name] for name in job.awaits if name in self._nodes and name not in self._not_given(job)]
        for alike in (alike for node in nodes for alike in gang_placement.alike_in(job.request, node)):
            if (room := neighbours.room_of_going(job, alike)) is not None:
                found.setdefault(alike.devices[0].type, []).append(room)
        enough = (tuple(rooms) for _, rooms in sorted(found.items()) if len(rooms) == job.request.node_count)
        return next(enough, ())

    def rooms_by_preemption(self, job: QueuedJob, neighbours: Neighbours, ledger: Ledger) -> tuple[Room, ...]:
        """The nodes where the least work would be lost of those that are looked at; none if that is not enough."""
        free = {each.node.name for each in self._candidates(job)}
        not_given = self._not_given(job).union(job.no_room_on)
        given = {name: node for name, node in self._nodes.items() if name not in not_given}
        return neighbours.rooms_by_preemption(job, given, sorted(free & given.keys()), ledger)

    def best_free(self, job: QueuedJob) -> Placement | None:
        found = self.place(job)
        return None if isinstance(found, str) else found

    def _soonest(self, devices: int, neighbours: Neighbours) -> Iterator[Rank]:
        """Every node that ever has so many devices free, no earlier than when it has; one may come twice."""
        free = sorted(name for name, node in self._nodes.items() if len(node.free) >= devices)
        yield from ((0.0, 0, name) for name in free)
        yield from neighbours.soonest(devices)

    def _candidates(self, job: QueuedJob) -> Iterator[Candidate]:
        known = self._known.setdefault(job.request, {})
        for node in self._given(job):
            seen = known.get(node.name)
            if seen is None or seen[0] is not node:
                seen = known[node.name] = node, gang_placement.candidates(job.request, node, self._weights)
            yield from seen[1]

    def _given(self, job: QueuedJob) -> Iterator[NodeCapacity]:
        not_given = self._not_given(job)
        return (node for name, node in self._nodes.items() if name not in not_given)

    def _not_given(self, job: QueuedJob) -> frozenset[str]:
        asked = job.request, job.avoids
        if asked not in self._avoided:
            self._avoided[asked] = avoided(job.request, job.avoids, self._nodes)
        return self._avoided[asked]
