"""A search of bounded length for a way to pack instances of roles, where simpler ways found none. Pure."""

from collections.abc import Mapping, Sequence

from app.domain.scheduling.resources import NodeCapacity
from app.domain.scheduling.roles.neighbours import Here, Neighbours
from app.domain.scheduling.roles.wanted import Filling, InstanceDevices, Wanted

MOST_STEPS = 2000  # a tenth of a second


def searched(
    filling: Filling, wanted: Sequence[Wanted], neighbours: Neighbours, most_steps: int = MOST_STEPS
) -> list[InstanceDevices] | None:
    """Every way to place one instance after the other, until one is found or the steps are used up.

    Instances of a role follow each other in ``wanted``.
    """
    return _Search(filling, wanted, neighbours, most_steps).go_on(0, dict(filling.nodes), {}, "")


class _Search:
    def __init__(self, filling: Filling, wanted: Sequence[Wanted], neighbours: Neighbours, most_steps: int) -> None:
        self._filling, self._wanted, self._neighbours = filling, wanted, neighbours
        self._left = most_steps

    def go_on(
        self, at: int, now: dict[str, NodeCapacity], on: Mapping[str, Here], last: str
    ) -> list[InstanceDevices] | None:
        """``on``: the instances of each node so far; ``last``: the node of the one before."""
        if at == len(self._wanted):
            return [] if all(map(self._neighbours.is_kept, on.values())) else None
        wanted, tried = self._wanted[at], set()
        for node in self._line(at, now, last):
            here = on.get(node.name, {})
            shape = self._filling.shape(node), tuple(sorted(here.items()))
            if shape in tried:
                continue
            tried.add(shape)
            self._left -= 1
            if self._left < 0:
                return None
            if not self._may_join(at, here):
                continue
            after = {**on, node.name: {**here, wanted.place: here.get(wanted.place, 0) + 1}}
            for taken in self._filling.ways(node, wanted):
                rest = self.go_on(at + 1, {**now, node.name: self._filling.after(node, taken)}, after, node.name)
                if rest is not None:
                    return [taken, *rest]
        return None

    def _line(self, at: int, now: Mapping[str, NodeCapacity], last: str) -> list[NodeCapacity]:
        """Instances of a role are equal: each is on the node of the one before it, or on a later one."""
        nodes = list(now.values())
        if not at or self._wanted[at - 1].place != self._wanted[at].place:
            return nodes
        return nodes[list(now).index(last) :]

    def _may_join(self, at: int, here: Here) -> bool:
        place = self._wanted[at].place
        if not self._neighbours.may_join(here, place):
            return False
        if place in self._neighbours.whole and self._wanted[at].index and not here.get(place, 0):
            return False
        to_come = {each.place for each in self._wanted[at:]}
        beside = self._neighbours.beside.get(place, frozenset())
        return all(here.get(other, 0) for other in beside - to_come)
