"""Where a job with roles starts once running jobs have ended: reservations, and preemption for it. Pure.

As for a gang, every node of it is cleared at once. The running jobs end one after the other, by their own estimate or
by the work that is lost, until the instances can be packed.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from math import inf

from app.domain.scheduling.gang_placement import Part
from app.domain.scheduling.preemption import Preemptor, Room, Running
from app.domain.scheduling.resources import NOTHING, NodeCapacity, Request
from app.domain.scheduling.roles.packing import pack

# Each of them takes another packing of all nodes.
MOST_VICTIMS = 64

On = Mapping[str, Sequence[Running]]  # by node


def in_time(request: Request, nodes: Sequence[NodeCapacity], running: On) -> tuple[Room, ...]:
    """The rooms that are free soonest without preemption; empty if the job would not fit even then."""
    ends: dict[str, float] = {}
    for each in _all(nodes, running):
        ends[each.job_id] = max(ends.get(each.job_id, 0.0), _ends_in(each))
    line = sorted(ends, key=lambda job_id: (ends[job_id], job_id))
    least, most = 0, len(line)
    if _after(request, nodes, running, set(line)) is None:
        return ()
    while least < most:
        middle = (least + most) // 2
        found = _after(request, nodes, running, set(line[:middle]))
        least, most = (least, middle) if found is not None else (middle + 1, most)
    ended = set(line[:least])
    parts = _after(request, nodes, running, ended)
    seconds = ends[line[least - 1]] if least else 0.0
    rooms = _rooms(request, parts or (), running, ended)
    return tuple(replace(room, seconds=None if seconds == inf else seconds) for room in rooms)


def of_stopping(request: Request, nodes: Sequence[NodeCapacity], running: On) -> tuple[Room, ...]:
    """The rooms once the jobs that are stopping there have ended; empty if that is not enough."""
    ended = {each.job_id for each in _all(nodes, running) if each.is_stopping}
    parts = _after(request, nodes, running, ended)
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
    victims: dict[str, Running] = {}
    further = iter(line.values())
    while not _is_enough(preemptor, nodes, running, stopping, victims):
        victim = next(further, None)
        if victim is None:
            return ()
        victims[victim.job_id] = victim
    for each in sorted(victims.values(), key=lambda each: (-each.loss, each.job_id)):
        rest = {job_id: other for job_id, other in victims.items() if job_id != each.job_id}
        if _is_enough(preemptor, nodes, running, stopping, rest):
            victims = rest
    parts = _after(request, nodes, running, stopping | victims.keys()) or ()
    return _with_victims(_rooms(request, parts, running, stopping | victims.keys()), victims)


def _is_enough(
    preemptor: Preemptor, nodes: Sequence[NodeCapacity], running: On, stopping: set[str], victims: Mapping[str, Running]
) -> bool:
    own = preemptor.job.project
    back = sum(each.released_devices for each in victims.values() if each.project == own)
    if round(back - preemptor.owed_quota, 6) < 0:
        return False
    return _after(preemptor.job.request, nodes, running, stopping | victims.keys()) is not None


def _with_victims(rooms: Sequence[Room], victims: Mapping[str, Running]) -> tuple[Room, ...]:
    found, left = [], dict(victims)
    for room in rooms:
        here = tuple(left.pop(each.job_id) for each in room.ended if each.job_id in left)
        found.append(replace(room, victims=here))
    elsewhere = (Room(node=each.node, devices=(), amounts=NOTHING, victims=(each,)) for each in left.values())
    return (*found, *elsewhere)


def _after(request: Request, nodes: Sequence[NodeCapacity], running: On, ended: set[str]) -> tuple[Part, ...] | None:
    """Where the job starts once these jobs have ended."""
    return pack(request, [_without(node, running.get(node.name, ()), ended) for node in nodes])


def _without(node: NodeCapacity, running: Iterable[Running], ended: set[str]) -> NodeCapacity:
    for each in running:
        if each.job_id in ended:
            node = node.without(each.devices, each.share, each.quantities)
    return node


def _rooms(request: Request, parts: Sequence[Part], running: On, ended: set[str]) -> tuple[Room, ...]:
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
