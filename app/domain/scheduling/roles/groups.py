"""Packs the instances of a job whose roles have an affinity: those that must share a node are placed together. Pure."""

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from app.domain.scheduling.resources import NodeCapacity
from app.domain.scheduling.roles.neighbours import Neighbours
from app.domain.scheduling.roles.wanted import Filling, InstanceDevices, Wanted


@dataclass(frozen=True)
class Groups:
    """Fills a node with instances, each together with those that must be on its node."""

    filling: Filling
    neighbours: Neighbours

    def line(self, wanted: Sequence[Wanted]) -> list[Wanted]:
        """Those that need the most others on their node first: they bring these along."""
        return sorted(wanted, key=lambda each: (-len(self.neighbours.with_all(each.place)), each.size))

    def each_where_least_is_left(self, wanted: Sequence[Wanted]) -> list[InstanceDevices] | None:
        """Group after group, the largest first, on a node that is used already where it can be, and is fullest then."""
        found: list[InstanceDevices] = []
        now, here = dict(self.filling.nodes), defaultdict[str, Counter[int]](Counter)
        rest = list(wanted)
        for each in sorted(self.line(wanted), key=self._devices, reverse=True):
            if each not in rest:
                continue
            line = sorted(now.values(), key=lambda node: (node.name not in here, len(node.free), node.name))
            ways = (self._together(node, each, here.get(node.name, Counter()), rest) for node in line)
            taken = next((way for way in ways if way is not None), None)
            if taken is None:
                return None
            for one in taken:
                now[one.node] = self.filling.after(now[one.node], one)
                here[one.node][one.wanted.place] += 1
                rest.remove(one.wanted)
            found += taken
        return found

    def _devices(self, wanted: Wanted) -> int:
        """Of the instance with one of each role that its node must have."""
        return sum(self.filling.devices_of(place) for place in self.neighbours.with_all(wanted.place))

    def most_on(self, node: NodeCapacity, left: Sequence[Wanted]) -> list[InstanceDevices]:
        """As many of the instances as an empty node takes, in this order."""
        found: list[InstanceDevices] = []
        here = Counter[int]()
        rest, refused = list(left), set[tuple[int, int]]()
        for each in left:
            if each not in rest or (each.place, len(found)) in refused:
                continue
            taken = self._together(node, each, here, rest)
            if taken is None:
                refused.add((each.place, len(found)))  # the others of its role need the same
                continue
            for one in taken:
                node = self.filling.after(node, one)
                here[one.wanted.place] += 1
                rest.remove(one.wanted)
            found += taken
        return found

    def _together(
        self, node: NodeCapacity, wanted: Wanted, here: Counter[int], left: Sequence[Wanted]
    ) -> list[InstanceDevices] | None:
        group = self.neighbours.group(wanted, here, left)
        if group is None:
            return None
        found = []
        for each in sorted(group, key=lambda each: each.size):
            taken = self.filling.on(node, each)
            if taken is None:
                return None
            found.append(taken)
            node = self.filling.after(node, taken)
        return found
