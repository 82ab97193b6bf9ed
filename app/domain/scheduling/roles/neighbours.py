"""Which instances of a job may share a node, and which must: the affinity of its roles. Pure.

Every rule is one of the instances on a single node, so that a placement keeps them all if each of its nodes does.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations

from app.domain.scheduling.resources import Request
from app.domain.scheduling.roles.wanted import Wanted
from app.domain.spec.roles import SAME_NODE, Affinity, together_with

Here = Mapping[int, int]  # how many instances of a role, by its place in the job, are on a node
Asked = tuple[int, Affinity]  # the place of the role that has it


def required_of(request: Request) -> list[Asked]:
    return [(place, each) for place, role in enumerate(request.roles) for each in role.affinity if each.required]


def preferred_of(request: Request) -> list[Asked]:
    """In the order of the document."""
    return [(place, each) for place, role in enumerate(request.roles) for each in role.affinity if not each.required]


def of_other_images(request: Request) -> Iterator[tuple[int, int]]:
    """Places of two roles, both ways round, whose images differ: a node has one sandbox, with one image, for a job."""
    for pair in permutations(range(len(request.roles)), 2):
        if request.roles[pair[0]].image != request.roles[pair[1]].image:
            yield pair


@dataclass(frozen=True)
class Neighbours:
    """``apart``: roles that share no node, as those of other images. ``beside``: roles of which one instance must be on
    each node of the role.

    ``whole``: roles of which all instances are on one node. ``alone``: of which each is on a node of its own.
    """

    counts: tuple[int, ...]
    apart: frozenset[tuple[int, int]]
    beside: Mapping[int, frozenset[int]]
    whole: frozenset[int]
    alone: frozenset[int]

    @classmethod
    def of(cls, request: Request, asked: Iterable[Asked]) -> "Neighbours":
        """Roles that the request does not have are left out."""
        places = {role.role: place for place, role in enumerate(request.roles)}
        apart, whole, alone = set(of_other_images(request)), set[int](), set[int]()
        beside: dict[int, frozenset[int]] = {}
        for place, affinity in asked:
            other = places.get(affinity.role)
            if other is None:
                continue
            is_same = affinity.where == SAME_NODE
            if other == place:
                (whole if is_same else alone).add(place)
            elif is_same:
                beside[place] = beside.get(place, frozenset()) | {other}
            else:
                apart |= {(place, other), (other, place)}
        counts = tuple(role.count for role in request.roles)
        return cls(counts, frozenset(apart), beside, frozenset(whole), frozenset(alone))

    @property
    def are_any(self) -> bool:
        return bool(self.apart or self.beside or self.whole or self.alone)

    def with_all(self, place: int) -> frozenset[int]:
        """The roles that every node of this role has, itself included."""
        return together_with(place, self.beside)

    def may_join(self, here: Here, place: int) -> bool:
        """Whether another instance of the role may start on a node with these."""
        if place in self.alone and here.get(place, 0):
            return False
        return not any((place, other) in self.apart for other, count in here.items() if count)

    def is_kept(self, here: Here) -> bool:
        """Whether these are all instances that a node may have in the end."""
        present = [place for place, count in here.items() if count]
        return (
            not any((place, other) in self.apart for place in present for other in present)
            and all(self.beside.get(place, frozenset()) <= set(present) for place in present)
            and all(here[place] == self.counts[place] for place in present if place in self.whole)
            and all(here[place] == 1 for place in present if place in self.alone)
        )

    def group(self, wanted: Wanted, here: Here, left: Sequence[Wanted]) -> list[Wanted] | None:
        """The instance, and those of ``left`` that must start with it on a node with ``here``; None: it can't."""
        found: dict[int, list[Wanted]] = {}
        for place in sorted(self.with_all(wanted.place)):
            if place != wanted.place and here.get(place, 0):
                continue
            some = [each for each in left if each.place == place]
            if place in self.whole:
                count = self.counts[place] - here.get(place, 0)
            else:
                count, some = 1, [wanted] if place == wanted.place else some
            if len(some) < count:
                return None
            found[place] = some[:count]
        after = {place: here.get(place, 0) + len(found.get(place, ())) for place in {*here, *found}}
        return [each for group in found.values() for each in group] if self.is_kept(after) else None
