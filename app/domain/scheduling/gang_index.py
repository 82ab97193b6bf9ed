"""Index of candidate nodes for gangs during a pass: recomputed for changed nodes, cached for the others."""

from collections.abc import Collection, Iterator, Mapping

from app.domain.scheduling import gang_placement
from app.domain.scheduling.filters import avoided
from app.domain.scheduling.gang_placement import GangCandidate, GangPart, Rank
from app.domain.scheduling.placement import Placement
from app.domain.scheduling.preemption import Room
from app.domain.scheduling.queue_order import QueuedJob
from app.domain.scheduling.resources import NodeCapacity, Request
from app.domain.scheduling.roles import packing, reasons
from app.domain.scheduling.running_index import RunningIndex
from app.domain.scheduling.scoring import Weights
from app.domain.scheduling.serving_order import PassAccounts

_RequestKey = tuple[Request, frozenset[str]]  # (request, nodes that it avoids)


class GangIndex:
    """``nodes`` is a live mapping; within a pass nodes only become fuller."""

    def __init__(self, nodes: Mapping[str, NodeCapacity], weights: Weights) -> None:
        self._nodes = nodes
        self._weights = weights
        self._known: dict[Request, dict[str, tuple[NodeCapacity, list[GangCandidate]]]] = {}
        self._avoided: dict[_RequestKey, frozenset[str]] = {}
        self._reasons: dict[_RequestKey, str] = {}
        self._could: dict[_RequestKey, bool] = {}

    def place(self, job: QueuedJob) -> Placement | str:
        """Return where the whole gang can start now, or why it can't."""
        asked = job.request, job.avoids
        if asked not in self._reasons:
            parts = self._parts(job)
            if parts is not None:
                return Placement.of(job.job_id, parts)
            explain = reasons.explain if job.request.roles else gang_placement.explain
            self._reasons[asked] = explain(job.request, list(self._nodes.values()), self._excluded(job))
        return self._reasons[asked]

    def _parts(self, job: QueuedJob) -> tuple[GangPart, ...] | None:
        if job.request.roles:
            return packing.pack(job.request, self._given(job), job.no_room_on)
        return gang_placement.choose(job.request, self._candidates(job), self._weights, job.no_room_on)

    def refresh(self, node: NodeCapacity) -> dict[object, Request]:
        """Note a changed node; returns the refused requests of which it could hold a part now."""
        reopened = [asked for asked in self._reasons if self._holds_a_part(asked[0], node)]
        for asked in reopened:
            del self._reasons[asked]
        return {(asked if asked[1] else asked[0]): asked[0] for asked in reopened}

    def _holds_a_part(self, request: Request, node: NodeCapacity) -> bool:
        parts = [role.each for role in request.roles] or [request]
        return any(gang_placement.candidates(each, node, self._weights) for each in parts)

    def is_unplaceable(self, job: QueuedJob) -> bool:
        """Whether the gang is already known to fit nowhere now."""
        return (job.request, job.avoids) in self._reasons

    def could_hold(self, job: QueuedJob) -> bool:
        """Whether enough eligible nodes could hold it if they were empty."""
        asked = job.request, job.avoids
        if asked not in self._could and job.request.roles:
            empty = map(packing.emptied, self._given(job))
            self._could[asked] = packing.pack(job.request, empty) is not None
        elif asked not in self._could:
            self._could[asked] = gang_placement.most_alike(job.request, self._given(job)) >= job.request.node_count
        return self._could[asked]

    def rooms(
        self, job: QueuedJob, running_index: RunningIndex, *, on: Collection[str] | None = None
    ) -> tuple[Room, ...]:
        """The nodes to reserve, ``on`` restricts them; empty if it would not fit even after all jobs there ended."""
        excluded = self._excluded(job).union(job.no_room_on)
        if job.request.roles:
            return running_index.rooms_in_time(job, self._without(excluded, on))
        known = (
            self._soonest(job.request.device_count, running_index) if on is None else ((0.0, 0, name) for name in on)
        )
        given = ((rank, self._nodes[rank[2]]) for rank in known if rank[2] in self._nodes and rank[2] not in excluded)
        return gang_placement.rooms(job.request, given, lambda node: running_index.room_on(job, node))

    def rooms_of_stopping(self, job: QueuedJob, running_index: RunningIndex) -> tuple[Room, ...]:
        """The nodes that it awaits, if the jobs that are already stopping there free enough."""
        if job.request.roles:
            return running_index.rooms_of_stopping(job, self._without(self._excluded(job), job.awaits))
        found: dict[str, list[Room]] = {}  # by device type
        nodes = [self._nodes[name] for name in job.awaits if name in self._nodes and name not in self._excluded(job)]
        for alike in (alike for node in nodes for alike in gang_placement.alike_in(job.request, node)):
            if (room := running_index.room_of_stopping(job, alike)) is not None:
                found.setdefault(alike.devices[0].type, []).append(room)
        enough = (tuple(rooms) for _, rooms in sorted(found.items()) if len(rooms) == job.request.node_count)
        return next(enough, ())

    def rooms_by_preemption(
        self, job: QueuedJob, running_index: RunningIndex, ledger: PassAccounts
    ) -> tuple[Room, ...]:
        """The nodes where preemption loses the least work, of those examined; empty if that is not enough."""
        if job.request.roles:
            given_nodes = self._without(self._excluded(job).union(job.no_room_on))
            return running_index.rooms_for_roles(job, given_nodes, ledger)
        free = {each.node.name for each in self._candidates(job)}
        excluded = self._excluded(job).union(job.no_room_on)
        given = {name: node for name, node in self._nodes.items() if name not in excluded}
        return running_index.rooms_by_preemption(job, given, sorted(free & given.keys()), ledger)

    def best_free(self, job: QueuedJob) -> Placement | None:
        found = self.place(job)
        return None if isinstance(found, str) else found

    def _without(self, excluded: Collection[str], on: Collection[str] | None = None) -> list[NodeCapacity]:
        nodes = self._nodes.items()
        return [node for name, node in nodes if name not in excluded and (on is None or name in on)]

    def _soonest(self, devices: int, running_index: RunningIndex) -> Iterator[Rank]:
        """Nodes with lower bounds for when so many devices are free, soonest first; a node may occur twice."""
        free = sorted(name for name, node in self._nodes.items() if len(node.free) >= devices)
        yield from ((0.0, 0, name) for name in free)
        yield from running_index.soonest(devices)

    def _candidates(self, job: QueuedJob) -> Iterator[GangCandidate]:
        known = self._known.setdefault(job.request, {})
        for node in self._given(job):
            seen = known.get(node.name)
            if seen is None or seen[0] is not node:
                seen = known[node.name] = node, gang_placement.candidates(job.request, node, self._weights)
            yield from seen[1]

    def _given(self, job: QueuedJob) -> Iterator[NodeCapacity]:
        excluded = self._excluded(job)
        return (node for name, node in self._nodes.items() if name not in excluded)

    def _excluded(self, job: QueuedJob) -> frozenset[str]:
        asked = job.request, job.avoids
        if asked not in self._avoided:
            self._avoided[asked] = (
                packing.excluded(job.request, job.avoids, self._nodes.values())
                if job.request.roles
                else avoided(job.request, job.avoids, self._nodes)
            )
        return self._avoided[asked]
