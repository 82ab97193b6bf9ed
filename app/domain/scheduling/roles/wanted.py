"""Nodes while they are filled with the instances of a job's roles. Pure."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from app.domain.scheduling.filters import choose_devices, could_fit, usable_devices
from app.domain.scheduling.gang_placement import alike_in
from app.domain.scheduling.resources import Device, NodeCapacity, Request


@dataclass(frozen=True)
class Wanted:
    """An instance that needs devices; ``place`` is that of its role in the job."""

    place: int
    index: int
    request: Request

    @property
    def size(self) -> tuple[int, ...]:
        """Orders instances, the largest first."""
        each = self.request
        amounts = -each.device_count, -each.cpu_cores, -each.ram_min_mb, -each.storage_min_mb
        return *amounts, self.place, self.index

    def __hash__(self) -> int:
        return hash((self.place, self.index))


@dataclass(frozen=True)
class InstanceDevices:
    """An instance with its devices of a node."""

    wanted: Wanted
    node: str
    devices: tuple[Device, ...]


def wanted_of(request: Request) -> list[Wanted]:
    """Every instance of the job, in the order of its document."""
    return [Wanted(place, index, role.each) for place, role in enumerate(request.roles) for index in range(role.count)]


def liking(request: Request, node: NodeCapacity) -> tuple[int, float]:
    """The lower, the better: how the job's preferences speak for the node, and how reliable it is."""
    known = node.known_as
    liked = len(request.preferred_labels & known) - len(request.avoided_labels & known)
    return -liked, -round(node.reputation, 2)


class Filling:
    """What the nodes can take of a job; ``nodes`` are those of them that could hold any of its instances."""

    def __init__(self, request: Request, nodes: Sequence[NodeCapacity]) -> None:
        self._request = request
        roles = [role.each for role in request.roles]
        self._fits = {node.name: tuple(not could_fit(each, node) for each in roles) for node in nodes}
        able = (node for node in nodes if any(self._fits[node.name]))
        self.nodes = {node.name: node for node in sorted(able, key=lambda node: (self.liking(node), node.name))}

    def devices_of(self, place: int) -> int:
        """Of an instance of the role at this place of the job."""
        return self._request.roles[place].each.device_count

    def liking(self, node: NodeCapacity) -> tuple[int, float]:
        """Orders nodes that are equal otherwise: by the job's preferences, then by how reliable they are."""
        return liking(self._request, node)

    def shape(self, node: NodeCapacity) -> object:
        """Equal for nodes that take the same instances."""
        free = sorted((device.type, device.memory_mb) for device in node.devices if device.index in node.free)
        held = node.held
        left = node.cpu_cores - held.cpu_cores, node.ram_mb - held.ram_mb, node.storage_mb - held.storage_mb
        return tuple(free), left, self._fits[node.name]

    def choices(self, wanted: Wanted) -> int:
        """On how many nodes the instance can start."""
        return sum(self.on(node, wanted) is not None for node in self.nodes.values())

    def may_be_enough(self, wanted: Sequence[Wanted]) -> bool:
        """Whether the nodes have enough free devices for each role, and for all of them together."""
        needed: dict[str, int] = {}
        for place, group in groupby(wanted, key=lambda each: each.place):
            each, *others = group
            kind, count = each.request.device_kind, each.request.device_count
            needed[kind] = needed.get(kind, 0) + count * (1 + len(others))
            rooms = (self._open(each.request, node) // count for node in self._able(place))
            if sum(rooms) < 1 + len(others):
                return False
        free = {kind: sum(self._of_kind(kind, node) for node in self.nodes.values()) for kind in needed}
        return all(free[kind] >= count for kind, count in needed.items())

    def on(self, node: NodeCapacity, wanted: Wanted) -> InstanceDevices | None:
        """The instance on the node, if it can start there now."""
        return next(self.ways(node, wanted), None)

    def ways(self, node: NodeCapacity, wanted: Wanted) -> Iterator[InstanceDevices]:
        """The instance on the node, with devices of each type of which enough are free."""
        if not self._fits[node.name][wanted.place] or len(node.free) < wanted.request.device_count:
            return
        for alike in alike_in(wanted.request, node):
            devices = choose_devices(wanted.request, alike)
            if devices is not None:
                yield InstanceDevices(wanted, node.name, devices)

    def most_on(self, node: NodeCapacity, wanted: Sequence[Wanted]) -> list[InstanceDevices]:
        """As many of the instances as the node takes, in this order.

        Where the node has devices of several types, those that accept few types come first if that is more.
        """
        found = self._all_on(node, wanted)
        if len(found) == len(wanted) or len({device.type for device in node.devices}) == 1:
            return found
        narrow = sorted(wanted, key=lambda each: (len(alike_in(each.request, node)), each.size))
        other = self._all_on(node, narrow)
        return max(found, other, key=lambda taken: sum(len(each.devices) for each in taken))

    def after(self, node: NodeCapacity, taken: InstanceDevices) -> NodeCapacity:
        """The node with the instance; all instances together count as one of its jobs."""
        given = node.given(device.index for device in taken.devices)
        return replace(given, held=node.held + taken.wanted.request.quantities)

    def _all_on(self, node: NodeCapacity, wanted: Iterable[Wanted]) -> list[InstanceDevices]:
        found, refused = [], set[int]()
        for each in wanted:
            taken = None if each.place in refused else self.on(node, each)
            if taken is None:
                refused.add(each.place)  # the others of its role need the same
                continue
            found.append(taken)
            node = self.after(node, taken)
        return found

    def _able(self, place: int) -> Iterable[NodeCapacity]:
        return (node for node in self.nodes.values() if self._fits[node.name][place])

    @staticmethod
    def _open(request: Request, node: NodeCapacity) -> int:
        return sum(device.index in node.free for device in usable_devices(request, node))

    @staticmethod
    def _of_kind(kind: str, node: NodeCapacity) -> int:
        return sum(device.index in node.free and device.is_cpu == (kind == "cpu") for device in node.devices)
