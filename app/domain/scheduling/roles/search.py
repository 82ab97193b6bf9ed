"""A search of bounded length for a way to pack instances of roles, where simpler ways found none. Pure."""

from collections.abc import Sequence

from app.domain.scheduling.resources import NodeCapacity
from app.domain.scheduling.roles.wanted import Filling, Taken, Wanted

MOST_STEPS = 2000  # a tenth of a second


def searched(filling: Filling, wanted: Sequence[Wanted]) -> list[Taken] | None:
    """Every way to place one instance after the other, until one is found or the steps are used up."""
    return _Search(filling, wanted).go_on(0, dict(filling.nodes))


class _Search:
    def __init__(self, filling: Filling, wanted: Sequence[Wanted]) -> None:
        self._filling, self._wanted = filling, wanted
        self._steps = 0

    def go_on(self, place: int, now: dict[str, NodeCapacity]) -> list[Taken] | None:
        if place == len(self._wanted):
            return []
        tried = set()
        for node in list(now.values()):
            shape = self._filling.shape(node)
            if shape in tried:
                continue
            tried.add(shape)
            self._steps += 1
            if self._steps > MOST_STEPS:
                return None
            for taken in self._filling.ways(node, self._wanted[place]):
                rest = self.go_on(place + 1, {**now, node.name: self._filling.after(node, taken)})
                if rest is not None:
                    return [taken, *rest]
        return None
