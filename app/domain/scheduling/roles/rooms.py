"""Where a job with roles starts once running jobs have ended: reservations, and preemption for it. Pure.

As for a gang, every node of it is cleared at once. The running jobs end one after the other, by their own estimate or
by the work that is lost, until the instances can be packed.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from math import inf

from app.domain.scheduling.gang_placement import GangPart
from app.domain.scheduling.preemption import Preemptor, Room, Running
from app.domain.scheduling.resources import NOTHING, NodeCapacity, Request
from app.domain.scheduling.roles.packing import can_pack, pack

# Whether each of those that are enough is needed takes another packing of all nodes.
MOST_VICTIMS = 128

On = Mapping[str, Sequence[Running]]  # by node


def in_time(request: Request, nodes: Sequence[NodeCapacity], running: On) -> tuple[Room, ...]:
    """The rooms that are free soonest without preemption; empty if the job would not fit even then."""
    ends: dict[str, float] = {}
    for each in _all(nodes, running):
        ends[each.job_id] = max(ends.get(each.job_id, 0.0), _ends_in(each))
    line = sorted(ends, key=lambda job_id: (ends[job_id], job_id))
    least, most = 0, len(line)
    cleared = _Cleared(nodes, running)
    if not can_pack(request, cleared.of(set(line))):
        return ()
    while least < most:
        middle = (least + most) // 2
        fits = can_pack(request, cleared.of(set(line[:middle])))
        least, most = (least, middle) if fits else (middle + 1, most)
    ended = set(line[:least])
    parts = pack(request, cleared.of(ended))
    seconds = ends[line[least - 1]] if least else 0.0
    rooms = _rooms(request, parts or (), running, ended)
    return tuple(replace(room, seconds=None if seconds == inf else seconds) for room in rooms)


def of_stopping(request: Request, nodes: Sequence[NodeCapacity], running: On) -> tuple[Room, ...]:
    """The rooms once the jobs that are stopping there have ended; empty if that is not enough."""
    ended = {each.job_id for each in _all(nodes, running) if each.is_stopping}
    parts = pack(request, _Cleared(nodes, running).of(ended))
    return () if parts is None else _rooms(request, parts, running, ended)


def by_preemption(preemptor: Preemptor, nodes: Sequence[NodeCapacity], running: On) -> tuple[Room, ...]:
    """The rooms after preemption of the jobs that lose least, none of them needlessly; empty if that is not enough.

    A victim on no node of the job that only frees quota has a room without devices.
    """
    request = preemptor.job.request
    stopping = {each.job_id for each in _all(nodes, running) if each.is_stopping}
    line: dict[str, Running] = {}
    for each in sorted(_all(nodes, running), key=lambda each: (each.loss, each.job_id, each.node)):
        if len(line) < MOST_VICTIMS and each.job_id not in line and preemptor.may_take(each, tuple(line.values())):
            line[each.job_id] = each
    cleared = _Cleared(nodes, running, stopping)
    victims = _fewest(lambda few: _is_enough(preemptor, cleared, few), list(line.values()))
    if victims is None:
        return ()
    parts = pack(request, cleared.of(victims.keys())) or ()
    used = {part.node for part in parts}
    near = {each.job_id for node in nodes if node.name in used for each in running.get(node.name, ())}
    few = {job_id: each for job_id, each in victims.items() if job_id in near}
    if _is_enough(preemptor, cleared, few):
        victims = few
    for each in sorted(victims.values(), key=lambda each: (-each.loss, each.job_id)):
        rest = {job_id: other for job_id, other in victims.items() if job_id != each.job_id}
        if _is_enough(preemptor, cleared, rest):
            victims = rest
    parts = pack(request, cleared.of(victims.keys())) or ()
    return _with_victims(_rooms(request, parts, running, stopping | victims.keys()), victims)


def _fewest(is_enough: Callable[[Mapping[str, Running]], bool], line: Sequence[Running]) -> dict[str, Running] | None:
    """The first of the line that are enough; None if all are not."""
    least, most = 0, len(line)
    if not is_enough({each.job_id: each for each in line}):
        return None
    while least < most:
        middle = (least + most) // 2
        fits = is_enough({each.job_id: each for each in line[:middle]})
        least, most = (least, middle) if fits else (middle + 1, most)
    return {each.job_id: each for each in line[:most]}


def _is_enough(preemptor: Preemptor, cleared: "_Cleared", victims: Mapping[str, Running]) -> bool:
    own = preemptor.job.project
    back = sum(each.released_devices for each in victims.values() if each.project == own)
    if round(back - preemptor.owed_quota, 6) < 0:
        return False
    return can_pack(preemptor.job.request, cleared.of(victims.keys()))


def _with_victims(rooms: Sequence[Room], victims: Mapping[str, Running]) -> tuple[Room, ...]:
    found, left = [], dict(victims)
    for room in rooms:
        here = tuple(left.pop(each.job_id) for each in room.ended if each.job_id in left)
        found.append(replace(room, victims=here))
    elsewhere = (Room(node=each.node, devices=(), amounts=NOTHING, victims=(each,)) for each in left.values())
    return (*found, *elsewhere)


class _Cleared:
    """The nodes once running jobs have ended, with those of ``stopping``. A node is made once for the same jobs."""

    def __init__(self, nodes: Sequence[NodeCapacity], running: On, stopping: Collection[str] = ()) -> None:
        self._nodes, self._running, self._stopping = nodes, running, stopping
        self._made: dict[tuple[str, tuple[str, ...]], NodeCapacity] = {}

    def of(self, ended: Collection[str]) -> list[NodeCapacity]:
        return [self._without(node, ended) for node in self._nodes]

    def _without(self, node: NodeCapacity, ended: Collection[str]) -> NodeCapacity:
        running = self._running.get(node.name, ())
        here = [each for each in running if each.job_id in ended or each.job_id in self._stopping]
        key = node.name, tuple(each.job_id for each in here)
        if key not in self._made:
            for each in here:
                node = node.without(each.devices, each.share, each.quantities)
            self._made[key] = node
        return self._made[key]


def _rooms(request: Request, parts: Sequence[GangPart], running: On, ended: set[str]) -> tuple[Room, ...]:
    rooms = []
    for part in parts:
        here = tuple(each for each in running.get(part.node, ()) if each.job_id in ended)
        back = sum((each.quantities for each in here), NOTHING)
        amounts = part.quantities(request).beyond(back)
        rooms.append(Room(node=part.node, devices=part.devices, amounts=amounts, ended=here))
    return tuple(rooms)


def _all(nodes: Sequence[NodeCapacity], running: On) -> list[Running]:
    return [each for node in nodes for each in running.get(node.name, ())]


def _ends_in(each: Running) -> float:
    if each.is_stopping:
        return 0.0
    return inf if each.ends_in is None else each.ends_in
