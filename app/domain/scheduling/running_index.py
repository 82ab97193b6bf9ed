"""What runs, while a plan is made: where room for a waiting job can be made, and where it comes by itself. Pure."""

from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import accumulate
from math import inf

from app.domain.scheduling.gang_preemption import Clearing
from app.domain.scheduling.node_classes import Given
from app.domain.scheduling.preemption import Claim, Room, Running, least_room, room_after
from app.domain.scheduling.queue_order import QueuedJob
from app.domain.scheduling.resources import NOTHING, NodeCapacity
from app.domain.scheduling.serving_order import Ledger

# Nodes that are looked at for victims in one pass, about a second of them; for one job at most half of what is left, so
# that those at the front of the line, for whom nothing helps, do not use them all up in every pass.
MAX_LOOKS = 50_000
# Nodes that are looked at for one job once there is a way: those where the least loss is to be expected come first.
_ENOUGH = 32

_Soonest = tuple[float, int, str]  # (seconds, jobs, node)


class Neighbours:
    """The running jobs by node: what one waiting job counts on is there for no other."""

    def __init__(
        self, running: Iterable[Running], nodes: Mapping[str, NodeCapacity], *, looks: int = MAX_LOOKS
    ) -> None:
        self._nodes = nodes  # as they are when something is looked for
        self._on: dict[str, list[Running]] = {}
        self._nodes_of: dict[str, list[str]] = {}  # each job's
        self._going: dict[tuple[str, str], float] = {}  # (project, kind) → devices that come back
        self._going_on: set[str] = set()
        # kind → (loss, node, project, priority) of each that may be asked to go, the least loss first
        self._asked: dict[str, list[tuple[float, str, str, int]]] = {}
        self._ends: dict[str, _Ends] = {}
        self._soonest_of: dict[int, list[_Soonest]] = {}
        self._soonest_at: dict[int, dict[str, _Soonest]] = {}  # the same by node, to be found in the list
        self._looks = looks
        for each in sorted(running, key=lambda each: each.job_id):
            self._on.setdefault(each.node, []).append(each)
            self._nodes_of.setdefault(each.job_id, []).append(each.node)
            if each.is_going:
                self._count_going(each)
            elif each.may_go:
                asked = self._asked.setdefault(each.kind, [])
                asked.append((each.loss, each.node, each.project, each.priority))
        for asked in self._asked.values():
            asked.sort()
        self._lenders = {kind: {project for _, _, project, _ in asked} for kind, asked in self._asked.items()}

    def room_of_going(self, job: QueuedJob, node: NodeCapacity) -> Room | None:
        """The node, when those that stop there already are enough."""
        return least_room(job, node, [each for each in self._on.get(node.name, ()) if each.is_going])

    def going(self, project: str, kind: str) -> float:
        """How many devices of a project are on their way back."""
        return self._going.get((project, kind), 0)

    def room_by_preemption(self, job: QueuedJob, given: Given, ledger: Ledger) -> Room | None:
        """Where the least work would be lost of the nodes that are looked at."""
        claim = self._claim(job, ledger)
        best: tuple[tuple[float, int, str], Room] | None = None
        after, left_for_others = 0, self._looks // 2
        for least, name in self._worth_a_look(claim, given.few):
            if self._looks <= left_for_others or (best is not None and (least > best[0][0] or after >= _ENOUGH)):
                break
            node = given(name) if name not in job.no_room_on else None
            if node is None:
                continue
            self._looks -= 1
            after += best is not None
            room = claim.room_on(node, self._on[name])
            if room is not None:
                rank = sum(victim.loss for victim in room.victims), len(room.victims), name
                if best is None or rank < best[0]:
                    best = rank, room
        return best[1] if best is not None else None

    def rooms_by_preemption(
        self, job: QueuedJob, given: Mapping[str, NodeCapacity], free: Sequence[str], ledger: Ledger
    ) -> tuple[Room, ...]:
        """The same for a gang, which may be ``given`` these nodes; on those of ``free`` a part of it could start."""
        claim = self._claim(job, ledger)
        clearing = Clearing(claim, self._on)
        for name in free:
            clearing.offer(given[name])
        after, left_for_others = 0, self._looks // 2
        for _, name in self._worth_a_look(claim, None):
            if self._looks <= left_for_others or after >= _ENOUGH:
                break
            if name in given:
                self._looks -= 1
                after += clearing.is_enough
                clearing.offer(given[name])
        return clearing.rooms()

    def room_in_time(self, job: QueuedJob, given: Given) -> Room | None:
        """Where enough ends soonest by itself; where no end is known, where the least has to end."""
        best: tuple[tuple[float, int, str], Room] | None = None
        for soonest in self.soonest(job.request.device_count, given.few):
            if best is not None and best[0] < soonest:
                break
            name = soonest[2]
            node = given(name) if name not in job.no_room_on else None
            found = self._ends_on(name).room(job, node) if node is not None else None
            if found is not None and (best is None or found[0] < best[0]):
                best = found
        return best[1] if best is not None else None

    def room_on(self, job: QueuedJob, node: NodeCapacity) -> Room | None:
        """The same on this node."""
        found = self._ends_on(node.name).room(job, node) if node.name in self._on else None
        return found[1] if found is not None else None

    def soonest(self, devices: int, few: frozenset[str] | None = None) -> list[_Soonest]:
        """No earlier than (seconds, jobs) a node has so many devices free; only of ``few`` where a job calls for these.

        Found once: nodes only become fuller, but for those where somebody is asked to go.
        """
        if devices not in self._soonest_of:
            found = self._soonest_of[devices] = sorted(self._soonest_on(self._nodes, devices))
            self._soonest_at[devices] = {each[2]: each for each in found}
        known = self._soonest_of[devices]
        return known if few is None else [each for each in known if each[2] in few]

    def _soonest_on(self, names: Iterable[str], devices: int) -> Iterator[_Soonest]:
        for name in names:
            node = self._nodes.get(name)  # a job may run on nodes that take no others now, too
            if node is not None and name in self._on:
                soonest = self._ends_on(name).soonest(devices - len(node.free) - len(node.parts))
                if soonest is not None:
                    yield (*soonest, name)

    def take(self, room: Room) -> None:
        """What these leave is spoken for."""
        taken = {device.index for device in room.devices}
        victims, gone = ({each.job_id for each in group} for group in (room.victims, room.gone))
        left = []
        for each in self._on.get(room.node, ()):
            now = each if each.job_id not in gone else replace(each, quantities=NOTHING)
            if each.job_id in victims:
                now = replace(now, is_going=True)
                self._count_going(each)
            left.append(replace(now, devices=each.devices - taken))
        self._on[room.node] = left
        self._ends.pop(room.node, None)
        if victims:
            self._end_elsewhere(victims, room.node)

    def _end_elsewhere(self, victims: set[str], node: str) -> None:
        """Who goes from one node goes from all that it has."""
        left = {name for victim in victims for name in self._nodes_of[victim]}
        for name in left - {node}:
            running = self._on[name]
            for place, each in enumerate(running):
                if each.job_id in victims and not each.is_going:
                    running[place] = replace(each, is_going=True)
                    self._count_going(each)
                    self._ends.pop(name, None)
        for devices, known in self._soonest_of.items():
            at = self._soonest_at[devices]
            for before in [at.pop(name) for name in left if name in at]:
                del known[bisect_left(known, before)]
            for now in self._soonest_on(left, devices):
                at[now[2]] = now
                insort(known, now)

    def _claim(self, job: QueuedJob, ledger: Ledger) -> Claim:
        kind, excess = job.request.device_kind, ledger.excess(job)
        owing = round(max(0.0, excess - self.going(job.project, kind)), 6)
        lent: dict[str, float] = {}
        if excess == 0 and ledger.is_deserved(job):
            others = self._lenders.get(kind, set()) - {job.project}
            lent = {each: ledger.borrowed(each, kind) - self.going(each, kind) for each in others}
        return Claim(job, owing, {project: left for project, left in lent.items() if round(left, 6) > 0})

    def _worth_a_look(self, claim: Claim, few: frozenset[str] | None) -> Iterator[tuple[float, str]]:
        """(what is lost there at least, node), the least first: where anybody goes, or may be asked to go for it."""
        own, below, lent = claim.job.project, claim.job.priority, claim.lent
        kind = claim.job.request.device_kind
        seen = set(self._going_on if few is None else self._going_on & few)
        yield from ((0.0, name) for name in sorted(seen))
        for loss, name, project, priority in self._asked.get(kind, ()) if few is None else self._asked_on(few, kind):
            if name not in seen and (priority < below if project == own else project in lent):
                seen.add(name)
                yield loss, name

    def _asked_on(self, names: Iterable[str], kind: str) -> list[tuple[float, str, str, int]]:
        return sorted(
            (each.loss, name, each.project, each.priority)
            for name in names
            for each in self._on.get(name, ())
            if each.may_go and not each.is_going and each.kind == kind
        )

    def _ends_on(self, name: str) -> "_Ends":
        if name not in self._ends:
            self._ends[name] = _Ends(self._on[name])
        return self._ends[name]

    def _count_going(self, each: Running) -> None:
        self._going_on.add(each.node)
        key = each.project, each.kind
        self._going[key] = self._going.get(key, 0) + each.amount


class _Ends:
    """When the jobs of a node end."""

    def __init__(self, running: Iterable[Running]) -> None:
        self._in_order = sorted(running, key=_ends_in)  # those that end together stay in the order of their ids
        self._devices = list(accumulate(len(each.devices) for each in self._in_order))

    def soonest(self, devices: int) -> tuple[float, int] | None:
        """No earlier than (seconds, jobs) so many devices are given back; None: never."""
        count = max(1, bisect_left(self._devices, devices) + 1)
        return (_ends_in(self._in_order[count - 1]), count) if count <= len(self._in_order) else None

    def room(self, job: QueuedJob, node: NodeCapacity) -> tuple[tuple[float, int, str], Room] | None:
        """Once the first of them have ended, with ((seconds, how many, the node), the room)."""
        for count, each in enumerate(self._in_order, start=1):
            room = room_after(job, node, self._in_order[:count])
            if room is not None:
                seconds = _ends_in(each)
                return (seconds, count, node.name), replace(room, seconds=None if seconds == inf else seconds)
        return None


def _ends_in(each: Running) -> float:
    if each.is_going:
        return 0.0
    return inf if each.ends_in is None else each.ends_in
