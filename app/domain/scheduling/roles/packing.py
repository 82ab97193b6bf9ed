"""Packs instances of roles onto nodes: all of them or none, on few nodes, the same for the same input. Pure.

Bin packing is hard, so three ways are tried: the largest instances first, each time onto the node that takes most of
what is left; those that fit on the fewest nodes first, where they leave least free; and a search of bounded length,
which finds a way for small jobs whenever there is one. Where roles have an affinity, instances that must share a node
are placed together in the first two ways.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import replace

from app.domain.scheduling.filters import usable_devices
from app.domain.scheduling.gang_placement import GangPart, PlacedInstance
from app.domain.scheduling.resources import NOTHING, Device, GpuType, NodeCapacity, Request
from app.domain.scheduling.roles.groups import Groups
from app.domain.scheduling.roles.neighbours import Asked, Neighbours, preferred_of, required_of
from app.domain.scheduling.roles.search import MOST_STEPS, searched
from app.domain.scheduling.roles.wanted import Filling, InstanceDevices, Wanted, liking, wanted_of

# For each affinity that is only preferred: the job has a placement already.
_STEPS_OF_A_PREFERENCE = 200


def pack(request: Request, nodes: Iterable[NodeCapacity], last: Collection[str] = ()) -> tuple[GangPart, ...] | None:
    """The parts of a job with roles, the one with the first instance of its first role first, then by name.

    Nodes of ``last`` are taken only where it starts on no others. None when the instances can't all start now.
    """
    open_nodes = [node for node in nodes if _is_open(node)]
    preferred = [node for node in open_nodes if node.name not in last]
    for given in (preferred, open_nodes) if len(preferred) < len(open_nodes) else (preferred,):
        found = _packed(request, given, required_of(request))
        if found is not None:
            return _parts(request, _as_preferred(request, given) or found)
    return None


def can_pack(request: Request, nodes: Iterable[NodeCapacity]) -> bool:
    """Whether all instances could start now; quicker than `pack` for a job that prefers something."""
    open_nodes = [node for node in nodes if _is_open(node)]
    return next(_by_type(request, open_nodes, required_of(request)), None) is not None


def emptied(node: NodeCapacity) -> NodeCapacity:
    """The node as if no job ran on it."""
    free = frozenset(device.index for device in node.devices) - node.out_of_service
    return replace(node, free=free, parts={}, held=NOTHING, active_jobs=0)


def excluded(request: Request, avoids: frozenset[str], nodes: Iterable[NodeCapacity]) -> frozenset[str]:
    """The nodes to exclude for a job with roles: those it avoids, unless it could not be held by the others."""
    given = list(nodes)
    could = [node.name for node in given if node.name in avoids]
    if not could:
        return frozenset()
    others = [emptied(node) for node in given if node.name not in avoids]
    return frozenset(could) if can_pack(request, others) else frozenset()


def _is_open(node: NodeCapacity) -> bool:
    return bool(node.free) and (node.max_jobs is None or node.active_jobs < node.max_jobs)


def _as_preferred(request: Request, nodes: Sequence[NodeCapacity]) -> list[InstanceDevices] | None:
    """With as much of what the job prefers as can be kept, in the order of its document; None: nothing of it."""
    preferred, kept = preferred_of(request), required_of(request)
    if not preferred:
        return None
    best = _packed(request, nodes, [*kept, *preferred], _STEPS_OF_A_PREFERENCE)
    for each in preferred if best is None and len(preferred) > 1 else ():
        found = _packed(request, nodes, [*kept, each], _STEPS_OF_A_PREFERENCE)
        if found is not None:
            kept, best = [*kept, each], found
    return best


def _packed(
    request: Request, nodes: Sequence[NodeCapacity], affinity: Sequence[Asked], most_steps: int = MOST_STEPS
) -> list[InstanceDevices] | None:
    """Of several types, with that which the job prefers; then on the fewest nodes, on reliable ones, by the name."""
    found = list(_by_type(request, nodes, affinity, most_steps))
    if len(found) < 2:
        return found[0] if found else None
    named = {node.name: node for node in nodes}

    def rank(taken: Sequence[InstanceDevices]) -> tuple[int, int, float]:
        likings = [liking(request, named[each.node]) for each in taken]
        reliable = round(sum(reputation for _, reputation in likings), 2)
        return sum(liked for liked, _ in likings), len({each.node for each in taken}), reliable

    return min(found, key=rank)


def _by_type(
    request: Request, nodes: Sequence[NodeCapacity], affinity: Sequence[Asked], most_steps: int = MOST_STEPS
) -> Iterator[list[InstanceDevices]]:
    """A way for each type of GPU with which there is one, by the name of the type."""
    for each in _of_one_type(request, nodes):
        found = _packed_as_asked(each, nodes, affinity, most_steps)
        if found is not None:
            yield found


def _of_one_type(request: Request, nodes: Sequence[NodeCapacity]) -> Iterator[Request]:
    """The request, for each type of GPU that a role may have whose instances must have the same; at most one has."""
    place = next((place for place, role in enumerate(request.roles) if role.alike and role.count > 1), None)
    kinds = set() if place is None else _types_of(request.roles[place].each, nodes)
    if place is None or len(kinds) < 2:
        yield request
        return
    before, role, after = request.roles[:place], request.roles[place], request.roles[place + 1 :]
    for kind in sorted(kinds):
        asked = role.each.gpu_types or (GpuType(kind),)
        narrowed = tuple(GpuType(kind, each.memory_mb) for each in asked if each.name in ("", kind))
        yield replace(request, roles=(*before, replace(role, each=replace(role.each, gpu_types=narrowed)), *after))


def _types_of(request: Request, nodes: Sequence[NodeCapacity]) -> set[str]:
    """The chips of GPUs that an instance may have."""
    return {device.chip for node in nodes for device in usable_devices(request, node) if not device.is_cpu}


def _packed_as_asked(
    request: Request, nodes: Sequence[NodeCapacity], affinity: Sequence[Asked], most_steps: int
) -> list[InstanceDevices] | None:
    filling, neighbours = Filling(request, nodes), Neighbours.of(request, affinity)
    wanted = wanted_of(request)
    if not filling.may_be_enough(wanted):
        return None
    if neighbours.are_any:
        return _in_groups(Groups(filling, neighbours), wanted, most_steps)
    largest = sorted(wanted, key=lambda each: each.size)
    found = _onto_few(filling, largest, filling.most_on)
    if found is None:
        scarce = sorted(wanted, key=lambda each: (filling.choices(each), each.size))
        found = _each_where_least_is_left(filling, scarce) or searched(filling, scarce, neighbours, most_steps)
    return found


def _in_groups(groups: Groups, wanted: Sequence[Wanted], most_steps: int) -> list[InstanceDevices] | None:
    filling, neighbours = groups.filling, groups.neighbours
    found = _onto_few(filling, groups.line(wanted), groups.most_on) or groups.each_where_least_is_left(wanted)
    if found is None:
        # Roles that others need on their node come before these: the search then knows which nodes are left.
        needs = {place: len(neighbours.with_all(place)) for place in range(len(neighbours.counts))}
        scarce = sorted(wanted, key=lambda each: (needs[each.place], filling.choices(each), each.place, each.index))
        found = searched(filling, scarce, neighbours, most_steps)
    return found


def _onto_few(
    filling: Filling,
    wanted: Sequence[Wanted],
    most_on: Callable[[NodeCapacity, Sequence[Wanted]], list[InstanceDevices]],
) -> list[InstanceDevices] | None:
    """Node after node, each time the one that takes most of what is left."""
    found: list[InstanceDevices] = []
    nodes, left = dict(filling.nodes), list(wanted)
    while left:
        best: tuple[tuple[object, ...], list[InstanceDevices]] | None = None
        seen = set()
        for node in nodes.values():
            shape = filling.shape(node)
            if shape in seen:
                continue
            seen.add(shape)
            taken = most_on(node, left)
            if not taken:
                continue
            devices = sum(len(each.devices) for each in taken)
            rank = (-devices, -len(taken), filling.liking(node), len(node.free) - devices, node.name)
            if best is None or rank < best[0]:
                best = rank, taken
        if best is None:
            return None
        found += best[1]
        del nodes[best[1][0].node]
        placed = {each.wanted for each in best[1]}
        left = [each for each in left if each not in placed]
    return found


def _each_where_least_is_left(filling: Filling, wanted: Sequence[Wanted]) -> list[InstanceDevices] | None:
    """Instance after instance, on a node that is used already where it can be, and where least stays free."""
    found: list[InstanceDevices] = []
    now, used = dict(filling.nodes), set[str]()
    for each in wanted:
        line = sorted(now.values(), key=lambda node: (node.name not in used, len(node.free), node.name))
        taken = next((taken for node in line if (taken := filling.on(node, each)) is not None), None)
        if taken is None:
            return None
        now[taken.node] = filling.after(now[taken.node], taken)
        used.add(taken.node)
        found.append(taken)
    return found


def _parts(request: Request, found: Sequence[InstanceDevices]) -> tuple[GangPart, ...]:
    """Instances of a role are equal: they are numbered by part, so that ranks of a node follow each other."""
    first = min(each.node for each in found if each.wanted.place == 0)
    names = sorted({each.node for each in found}, key=lambda name: (name != first, name))
    on: dict[str, list[PlacedInstance]] = {name: [] for name in names}
    for place, role in enumerate(request.roles):
        of_role = [each for each in found if each.wanted.place == place]
        of_role.sort(key=lambda each: (names.index(each.node), each.devices[0].index))
        for index, each in enumerate(of_role):
            on[each.node].append(
                PlacedInstance(role=role.role, index=index, devices=each.devices, quantities=role.each.quantities)
            )
    return tuple(
        GangPart(node=name, devices=_devices(instances), instances=tuple(instances)) for name, instances in on.items()
    )


def _devices(instances: Iterable[PlacedInstance]) -> tuple[Device, ...]:
    return tuple(sorted((device for each in instances for device in each.devices), key=lambda device: device.index))
