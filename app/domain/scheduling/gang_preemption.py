"""Gang preemption: select victims on several nodes, so that the whole gang fits, or none at all. Pure."""

import heapq
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from app.domain.scheduling.gang_placement import alike_in
from app.domain.scheduling.preemption import Preemptor, Room, Running, fits_after, least_room
from app.domain.scheduling.resources import NOTHING, NodeCapacity

Victims = dict[
    str, Running
]  # victims by job id; an entry counts its devices on all nodes, so any entry of a job will do
# Number of running gangs that are tried one by one as first victim.
_GANGS = 8
Rank = tuple[float, int, str]  # of a node: (work lost there, number of victims, name)


@dataclass(frozen=True)
class _Selection:
    rank: tuple[float, int, list[str]]
    rooms: tuple[Room, ...]


class GangPreemption:
    """Collects candidate nodes and selects the set where preemption loses the least work."""

    def __init__(self, preemptor: Preemptor, running: Mapping[str, Sequence[Running]]) -> None:
        self._preemptor = preemptor
        self._count = preemptor.job.request.node_count
        self._running = running  # by node
        self._kinds: dict[str, dict[str, tuple[NodeCapacity, Rank]]] = {}  # device type → its nodes by name

    @property
    def is_enough(self) -> bool:
        """Whether the offered nodes may suffice; further ones can only make the preemption cheaper."""
        return any(len(found) >= self._count for found in self._kinds.values())

    def offer(self, node: NodeCapacity) -> None:
        """Add the node in its current state; it counts once for each type of which it has enough devices."""
        for alike in alike_in(self._preemptor.job.request, node):
            rank = self._rank(alike, {})
            if rank is not None:
                self._kinds.setdefault(alike.devices[0].type, {})[node.name] = alike, rank

    def rooms(self) -> tuple[Room, ...]:
        """One room for each node, and one without devices for each victim that only frees quota.

        Empty when the gang could not start even after all possible victims had stopped.
        """
        kinds = [found for _, found in sorted(self._kinds.items()) if len(found) >= self._count]
        ways = (self._way(found, first) for found in kinds for first in (None, *self._on_several(found)))
        best = min((way for way in ways if way is not None), key=lambda way: way.rank, default=None)
        return best.rooms if best is not None else ()

    def _on_several(self, found: Mapping[str, tuple[NodeCapacity, Rank]]) -> list[Running]:
        """The running gangs with the least loss: preempting one frees several nodes for one loss."""
        able = {
            each.job_id: each
            for name in sorted(found)
            for each in self._running.get(name, ())
            if each.elsewhere > 0 and self._preemptor.may_take(each)
        }
        return heapq.nsmallest(_GANGS, able.values(), key=lambda each: (each.loss, each.job_id))

    def _way(self, found: Mapping[str, tuple[NodeCapacity, Rank]], first: Running | None) -> _Selection | None:
        """The cheapest set of nodes, given that ``first`` is preempted."""
        picked = self._pick(found, {} if first is None else {first.job_id: first})
        if picked is None:
            return None
        chosen, asked = picked
        for each in self._ask_for_quota(chosen, found, asked):
            asked[each.job_id] = each
        if not self._is_within_quota(asked):
            return None
        asked = self._least(chosen, asked)
        rooms = self._rooms(chosen, asked)
        return _Selection(
            (sum(each.loss for each in asked.values()), len(asked), [node.name for node in chosen]), rooms
        )

    def _pick(
        self, found: Mapping[str, tuple[NodeCapacity, Rank]], asked: Victims
    ) -> tuple[list[NodeCapacity], Victims] | None:
        """Pick the cheapest nodes one by one; a victim on one node frees its devices on all others, too."""
        line = [rank for _, rank in found.values()] + self._anew(found, asked, asked)
        heapq.heapify(line)
        chosen: list[NodeCapacity] = []
        while line and len(chosen) < self._count:
            rank = heapq.heappop(line)
            node = found[rank[2]][0]
            if node in chosen:
                continue
            now = self._rank(node, asked)  # what may be reclaimed from a project shrinks with each victim
            if now is not None and now > rank:
                heapq.heappush(line, now)
            elif now is not None:
                chosen.append(node)
                new = {each.job_id: each for each in self._victims(node, asked)}
                asked = asked | new
                for cheaper in self._anew(found, asked, new):
                    heapq.heappush(line, cheaper)
        return (sorted(chosen, key=lambda node: node.name), asked) if len(chosen) == self._count else None

    def _anew(self, found: Mapping[str, tuple[NodeCapacity, Rank]], asked: Victims, new: Collection[str]) -> list[Rank]:
        """Recompute the ranks of the nodes where one of the ``new`` victims runs."""
        nodes = (found[name][0] for name in found if any(e.job_id in new for e in self._running.get(name, ())))
        ranks = (self._rank(node, asked) for node in nodes)
        return [rank for rank in ranks if rank is not None]

    def _rank(self, node: NodeCapacity, asked: Victims) -> Rank | None:
        room = self._room(node, asked)
        if room is None:
            return None
        return sum(each.loss for each in room.victims), len(room.victims), node.name

    def _victims(self, node: NodeCapacity, asked: Victims) -> tuple[Running, ...]:
        room = self._room(node, asked)
        return () if room is None else room.victims

    def _room(self, node: NodeCapacity, asked: Victims) -> Room | None:
        preemptor = replace(self._preemptor, owed_quota=0.0, asked=tuple(asked.values()))
        return preemptor.room_on(node, self._after(node.name, asked))

    def _after(self, name: str, asked: Victims) -> list[Running]:
        """The running jobs of a node, with the victims marked as stopping."""
        here = self._running.get(name, ())
        return [replace(each, is_stopping=True) if each.job_id in asked else each for each in here]

    def _ask_for_quota(
        self, chosen: Sequence[NodeCapacity], found: Mapping[str, tuple[NodeCapacity, Rank]], asked: Victims
    ) -> list[Running]:
        """Further victims of the gang's own project that free enough quota, by loss per device."""
        here = {node.name for node in chosen}
        owed_quota = self._preemptor.owed_quota - self._back(asked)
        able = {
            each.job_id: each
            for name in sorted(found, key=lambda name: (name not in here, name))
            for each in self._running.get(name, ())
            if each.project == self._preemptor.job.project
            and each.job_id not in asked
            and self._preemptor.may_take(each)
        }
        more = []
        for each in sorted(able.values(), key=lambda each: (each.loss / max(each.released_devices, 0.01), each.job_id)):
            if round(owed_quota, 6) <= 0:
                break
            more.append(each)
            owed_quota -= each.released_devices
        return more

    def _back(self, asked: Victims) -> float:
        own = self._preemptor.job.project
        return sum(each.released_devices for each in asked.values() if each.project == own)

    def _is_within_quota(self, asked: Victims) -> bool:
        return round(self._back(asked) - self._preemptor.owed_quota, 6) >= 0

    def _least(self, chosen: Sequence[NodeCapacity], asked: Victims) -> Victims:
        """Drop victims that are not needed, the most expensive first."""
        for each in sorted(asked.values(), key=lambda each: (-each.loss, each.job_id)):
            rest = {name: other for name, other in asked.items() if name != each.job_id}
            if self._is_within_quota(rest) and all(self._is_room(node, rest) for node in chosen):
                asked = rest
        return asked

    def _is_room(self, node: NodeCapacity, asked: Victims) -> bool:
        ended = [each for each in self._after(node.name, asked) if each.is_stopping]
        return fits_after(self._preemptor.job, node, ended)

    def _rooms(self, chosen: Sequence[NodeCapacity], asked: Victims) -> tuple[Room, ...]:
        rooms, left = [], dict(asked)
        for node in chosen:
            stopping = [each for each in self._after(node.name, asked) if each.is_stopping]
            room = least_room(self._preemptor.job, node, stopping)
            if room is not None:
                victims = tuple(left.pop(each.job_id) for each in stopping if each.job_id in left)
                rooms.append(replace(room, victims=victims))
        # Victims without devices on those nodes only free quota.
        elsewhere = (Room(node=each.node, devices=(), amounts=NOTHING, victims=(each,)) for each in left.values())
        return (*rooms, *elsewhere)
