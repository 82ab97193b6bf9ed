"""Whose devices on several nodes a waiting gang may take: all that it needs, or nobody's. Pure."""

import heapq
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from app.domain.scheduling.gang_placement import alike_in
from app.domain.scheduling.preemption import Claim, Room, Running, fits_after, least_room
from app.domain.scheduling.resources import NOTHING, NodeCapacity

Asked = dict[str, Running]  # by job: with all that each has, of all nodes, so any of its entries will do
# So many of the gangs that run are tried one by one.
_GANGS = 8
Rank = tuple[float, int, str]  # of a node: (what is lost there, how many have to be asked, its name)


@dataclass(frozen=True)
class _Way:
    rank: tuple[float, int, list[str]]
    rooms: tuple[Room, ...]


class Clearing:
    """The nodes that are offered, from which those are taken together where the least work is lost."""

    def __init__(self, claim: Claim, running: Mapping[str, Sequence[Running]]) -> None:
        self._claim = claim
        self._count = claim.job.request.node_count
        self._running = running  # by node
        self._kinds: dict[str, dict[str, tuple[NodeCapacity, Rank]]] = {}  # device type → its nodes by name

    @property
    def is_enough(self) -> bool:
        """Whether there may be a way already; those that are offered now can only make it a cheaper one."""
        return any(len(found) >= self._count for found in self._kinds.values())

    def offer(self, node: NodeCapacity) -> None:
        """As it is now; it counts once for each type of which it has enough devices."""
        for alike in alike_in(self._claim.job.request, node):
            rank = self._rank(alike, {})
            if rank is not None:
                self._kinds.setdefault(alike.devices[0].type, {})[node.name] = alike, rank

    def rooms(self) -> tuple[Room, ...]:
        """One for each node that is taken, and one without devices where somebody goes for the quota alone.

        Empty when the gang could not start when all who may be asked had gone.
        """
        kinds = [found for _, found in sorted(self._kinds.items()) if len(found) >= self._count]
        ways = (self._way(found, first) for found in kinds for first in (None, *self._on_several(found)))
        best = min((way for way in ways if way is not None), key=lambda way: way.rank, default=None)
        return best.rooms if best is not None else ()

    def _on_several(self, found: Mapping[str, tuple[NodeCapacity, Rank]]) -> list[Running]:
        """The gangs that lose least: one of them gives several nodes back at once, for what it costs on the first."""
        able = {
            each.job_id: each
            for name in sorted(found)
            for each in self._running.get(name, ())
            if each.elsewhere > 0 and self._claim.may_take(each)
        }
        return heapq.nsmallest(_GANGS, able.values(), key=lambda each: (each.loss, each.job_id))

    def _way(self, found: Mapping[str, tuple[NodeCapacity, Rank]], first: Running | None) -> _Way | None:
        """The cheapest nodes once ``first`` has been asked."""
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
        return _Way((sum(each.loss for each in asked.values()), len(asked), [node.name for node in chosen]), rooms)

    def _pick(
        self, found: Mapping[str, tuple[NodeCapacity, Rank]], asked: Asked
    ) -> tuple[list[NodeCapacity], Asked] | None:
        """The cheapest node after the other; who is asked on one goes from all others, too."""
        line = [rank for _, rank in found.values()] + self._anew(found, asked, asked)
        heapq.heapify(line)
        chosen: list[NodeCapacity] = []
        while line and len(chosen) < self._count:
            rank = heapq.heappop(line)
            node = found[rank[2]][0]
            if node in chosen:
                continue
            now = self._rank(node, asked)  # what may be taken back of a project gets less with each that is asked
            if now is not None and now > rank:
                heapq.heappush(line, now)
            elif now is not None:
                chosen.append(node)
                new = {each.job_id: each for each in self._victims(node, asked)}
                asked = asked | new
                for cheaper in self._anew(found, asked, new):
                    heapq.heappush(line, cheaper)
        return (sorted(chosen, key=lambda node: node.name), asked) if len(chosen) == self._count else None

    def _anew(self, found: Mapping[str, tuple[NodeCapacity, Rank]], asked: Asked, new: Collection[str]) -> list[Rank]:
        """The ranks of the nodes where one of the ``new`` ones runs, of those who are asked."""
        nodes = (found[name][0] for name in found if any(e.job_id in new for e in self._running.get(name, ())))
        ranks = (self._rank(node, asked) for node in nodes)
        return [rank for rank in ranks if rank is not None]

    def _rank(self, node: NodeCapacity, asked: Asked) -> Rank | None:
        room = self._room(node, asked)
        if room is None:
            return None
        return sum(each.loss for each in room.victims), len(room.victims), node.name

    def _victims(self, node: NodeCapacity, asked: Asked) -> tuple[Running, ...]:
        room = self._room(node, asked)
        return () if room is None else room.victims

    def _room(self, node: NodeCapacity, asked: Asked) -> Room | None:
        claim = replace(self._claim, owing=0.0, asked=tuple(asked.values()))
        return claim.room_on(node, self._after(node.name, asked))

    def _after(self, name: str, asked: Asked) -> list[Running]:
        """What runs on a node, where those that are asked go."""
        here = self._running.get(name, ())
        return [replace(each, is_going=True) if each.job_id in asked else each for each in here]

    def _ask_for_quota(
        self, chosen: Sequence[NodeCapacity], found: Mapping[str, tuple[NodeCapacity, Rank]], asked: Asked
    ) -> list[Running]:
        """Who of its project has to go beside, so that the quota lets it start: by what each device costs."""
        here = {node.name for node in chosen}
        owing = self._claim.owing - self._back(asked)
        able = {
            each.job_id: each
            for name in sorted(found, key=lambda name: (name not in here, name))
            for each in self._running.get(name, ())
            if each.project == self._claim.job.project and each.job_id not in asked and self._claim.may_take(each)
        }
        more = []
        for each in sorted(able.values(), key=lambda each: (each.loss / max(each.gives_back, 0.01), each.job_id)):
            if round(owing, 6) <= 0:
                break
            more.append(each)
            owing -= each.gives_back
        return more

    def _back(self, asked: Asked) -> float:
        own = self._claim.job.project
        return sum(each.gives_back for each in asked.values() if each.project == own)

    def _is_within_quota(self, asked: Asked) -> bool:
        return round(self._back(asked) - self._claim.owing, 6) >= 0

    def _least(self, chosen: Sequence[NodeCapacity], asked: Asked) -> Asked:
        """Without those whom others have made needless, the dearest first."""
        for each in sorted(asked.values(), key=lambda each: (-each.loss, each.job_id)):
            rest = {name: other for name, other in asked.items() if name != each.job_id}
            if self._is_within_quota(rest) and all(self._is_room(node, rest) for node in chosen):
                asked = rest
        return asked

    def _is_room(self, node: NodeCapacity, asked: Asked) -> bool:
        gone = [each for each in self._after(node.name, asked) if each.is_going]
        return fits_after(self._claim.job, node, gone)

    def _rooms(self, chosen: Sequence[NodeCapacity], asked: Asked) -> tuple[Room, ...]:
        rooms, left = [], dict(asked)
        for node in chosen:
            going = [each for each in self._after(node.name, asked) if each.is_going]
            room = least_room(self._claim.job, node, going)
            if room is not None:
                victims = tuple(left.pop(each.job_id) for each in going if each.job_id in left)
                rooms.append(replace(room, victims=victims))
        # Who has nothing on those nodes goes for the quota alone.
        elsewhere = (Room(node=each.node, devices=(), amounts=NOTHING, victims=(each,)) for each in left.values())
        return (*rooms, *elsewhere)
