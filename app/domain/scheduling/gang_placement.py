"""Gang placement: all nodes of a multi-node job or none, of one device type and close in the network. Pure."""

from bisect import insort
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from operator import itemgetter

from app.domain.scheduling.filters import (
    NAMED,
    choose_devices,
    could_fit,
    describe,
    excluded,
    what_is_free,
    with_most_free,
)
from app.domain.scheduling.preemption import Room
from app.domain.scheduling.resources import NOTHING, Device, NodeCapacity, Quantities, Request
from app.domain.scheduling.scoring import SAME_SWITCH, Weights, closeness, score_node

Rank = tuple[float, int, str]  # of a node: (seconds until it is free, number of jobs that must end there, name)


@dataclass(frozen=True, kw_only=True)
class PlacedInstance:
    """The devices of an instance of a role."""

    role: str
    index: int
    devices: tuple[Device, ...]
    quantities: Quantities = NOTHING


@dataclass(frozen=True, kw_only=True)
class GangPart:
    """The devices of a gang on one node, and the instances of roles that have them, by role and index."""

    node: str
    devices: tuple[Device, ...]
    instances: tuple[PlacedInstance, ...] = ()

    def quantities(self, request: Request) -> Quantities:
        """What the job takes of the node's amounts."""
        return sum((each.quantities for each in self.instances), NOTHING) if request.roles else request.quantities


@dataclass(frozen=True, kw_only=True)
class GangCandidate:
    """A node, reduced to its devices of one type, where a part could start now."""

    node: NodeCapacity
    devices: tuple[Device, ...]
    score: float


def candidates(request: Request, node: NodeCapacity, weights: Weights) -> list[GangCandidate]:
    """One candidate for each device type of which the node has enough free."""
    if len(node.free) < request.device_count:
        return []
    found = []
    for alike in alike_in(request, node):
        devices = choose_devices(request, alike)
        if devices is not None:
            found.append(GangCandidate(node=alike, devices=devices, score=score_node(request, alike, weights)))
    return found


def choose(
    request: Request, found: Iterable[GangCandidate], weights: Weights, no_room_on: Collection[str] = ()
) -> tuple[GangPart, ...] | None:
    """One part on each of ``node_count`` nodes, by name; None when fewer nodes could start a part now.

    The set with the highest score wins: mean of the node scores plus topology closeness. Nodes whose disk was full
    for the job come last.
    """
    best: tuple[tuple[int, float], Sequence[GangCandidate]] | None = None
    for alike in _by_type(found, no_room_on):
        for chosen in _sets(alike, request.node_count):
            mean = sum(each.score for each in chosen) / len(chosen)
            near = weights[SAME_SWITCH] * closeness([each.node for each in chosen])
            rank = -sum(each.node.name in no_room_on for each in chosen), mean + near
            if best is None or rank > best[0]:
                best = rank, chosen
    if best is None:
        return None
    return tuple(
        GangPart(node=each.node.name, devices=each.devices) for each in sorted(best[1], key=lambda c: c.node.name)
    )


def most_alike(request: Request, nodes: Iterable[NodeCapacity]) -> int:
    """How many nodes of one device type could each hold a part if they were empty."""
    return len(_most_alike(request, nodes))


def rooms(
    request: Request, soonest_first: Iterable[tuple[Rank, NodeCapacity]], room_on: Callable[[NodeCapacity], Room | None]
) -> tuple[Room, ...]:
    """Reservations for a gang that has waited long: the nodes that are free soonest; empty if it would not fit then.

    ``soonest_first`` yields each node with a lower bound of its rank; the search stops when no later node can be among
    the soonest. ``room_on`` returns what has to end on a node that is not free. Nodes that are free already stay
    reserved until the last one is.
    """
    found: dict[str, list[tuple[Rank, Room]]] = {}  # device type → the soonest nodes so far
    best: Sequence[tuple[Rank, Room]] = ()
    seen: set[str] = set()
    for least, node in soonest_first:
        if best and best[-1][0] <= least:
            break
        for alike in alike_in(request, node) if node.name not in seen else ():
            if (room := _room(request, alike, room_on)) is not None:
                seen.add(node.name)
                kind = found.setdefault(alike.devices[0].type, [])
                insort(kind, room, key=itemgetter(0))
                del kind[request.node_count :]
        enough = (kind for kind in found.values() if len(kind) == request.node_count)
        best = min(enough, key=lambda kind: [rank for rank, _ in reversed(kind)], default=())
    seconds = [room.seconds for _, room in best]
    until = None if None in seconds else max((each for each in seconds if each is not None), default=None)
    return tuple(replace(room, seconds=until) for _, room in best)


def _room(
    request: Request, node: NodeCapacity, room_on: Callable[[NodeCapacity], Room | None]
) -> tuple[Rank, Room] | None:
    devices = choose_devices(request, node)
    if devices is not None:
        free = Room(node=node.name, devices=devices, amounts=request.quantities, seconds=0.0)
        return (0.0, 0, node.name), free
    room = room_on(node)
    if room is None:
        return None
    return (float("inf") if room.seconds is None else room.seconds, len(room.ended), node.name), room


def asked_for(request: Request) -> str:
    """In words: ``2 GPUs on each of 3 nodes, all of one type``."""
    of_one_type = ", all of one type" if may_differ(request) else ""
    return f"{describe(request)} on each of {request.node_count} nodes{of_one_type}"


def may_differ(request: Request) -> bool:
    """Whether devices of more than one type are what it asks for."""
    return request.device_kind != "cpu" and (len(request.gpu_types) != 1 or request.gpu_types[0].name == "")


def explain(request: Request, nodes: Sequence[NodeCapacity], avoided: Collection[str] = ()) -> str:
    """Why a gang does not start now: how many nodes could start a part, and what the others lack."""
    given = [node for node in nodes if node.name not in avoided]
    fitting = _most_alike(request, given)
    if not given:
        why = "no node is ready"
    elif len(fitting) < request.node_count:
        why = _what_others_lack(request, given, len(fitting))
    else:
        why = _what_is_not_free(request, fitting)
    return f"needs {asked_for(request)}; {why}{excluded(avoided)}"


def _ready_nodes(count: int) -> str:
    return {0: "no ready node", 1: "only 1 ready node"}.get(count, f"only {count} ready nodes")


def _what_others_lack(request: Request, nodes: Sequence[NodeCapacity], count: int) -> str:
    """``count``: number of nodes of one type that could hold a part."""
    lacks = [f"{node.name} {reason}" for node in nodes if (reason := could_fit(request, node))]
    if len(nodes) - len(lacks) > count:
        at_most = f"at most {count} of each" if count else "and none has so many of one type"
        return f"the ready nodes that could hold that are of different types, {at_most}"
    return "; ".join([f"{_ready_nodes(count)} could hold that", *lacks[:NAMED]])


def _what_is_not_free(request: Request, fitting: Sequence[NodeCapacity]) -> str:
    others = [node for node in fitting if choose_devices(request, node) is None]
    elsewhere = "" if len(others) == len(fitting) else "elsewhere "
    found = _ready_nodes(len(fitting) - len(others))
    return f"{found} could give that now; {elsewhere}free: {what_is_free(request, with_most_free(request, others))}"


def _by_type(found: Iterable[GangCandidate], no_room_on: Collection[str]) -> list[list[GangCandidate]]:
    """Candidates by type, best first; ties are broken by name, so that the same input gives the same plan."""
    kinds: dict[str, list[GangCandidate]] = {}
    for each in found:
        kinds.setdefault(each.devices[0].type, []).append(each)
    for alike in kinds.values():
        alike.sort(key=lambda each: (each.node.name in no_room_on, -each.score, each.node.name))
    return [alike for _, alike in sorted(kinds.items())]


def alike_in(request: Request, node: NodeCapacity) -> list[NodeCapacity]:
    """The node reduced to the devices of one type, for each type that could hold a part of the job."""
    kinds = sorted({device.type for device in node.devices})
    if len(kinds) == 1:
        return [] if could_fit(request, node) else [node]
    found = (replace(node, devices=tuple(d for d in node.devices if d.type == kind)) for kind in kinds)
    return [alike for alike in found if not could_fit(request, alike)]


def _most_alike(request: Request, nodes: Iterable[NodeCapacity]) -> list[NodeCapacity]:
    """The nodes of the device type of which most nodes could hold a part."""
    found: dict[str, list[NodeCapacity]] = {}
    for node in nodes:
        for alike in alike_in(request, node):
            found.setdefault(alike.devices[0].type, []).append(alike)
    return max(found.values(), key=len, default=[])


def _sets(found: Sequence[GangCandidate], count: int) -> Iterable[Sequence[GangCandidate]]:
    """The best nodes overall, and for each switch and rack its best, filled up with the best of the others."""
    if len(found) < count:
        return
    yield found[:count]
    inside: dict[str, list[GangCandidate]] = {}
    for each in found:
        for label in each.node.labels:
            if label.startswith(("switch=", "rack=")):
                inside.setdefault(label, []).append(each)
    for label, sharing in sorted(inside.items()):
        if len(sharing) > 1:
            others = (each for each in found if label not in each.node.labels)
            yield [*sharing[:count], *islice(others, max(0, count - len(sharing)))]
