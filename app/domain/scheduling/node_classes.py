"""Node equivalence classes: find the nodes that could ever hold a request without filtering every pair.

Filters run once per class: nodes with the same devices and capabilities, and nodes with the same labels. Amounts are
compared per node.
"""

import heapq
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from app.domain.names import EITHER
from app.domain.scheduling.filters import LABEL_FILTERS, could_fit
from app.domain.scheduling.resources import NOTHING, Device, NodeCapacity, Request
from app.domain.scheduling.scoring import preference

# Up to this fraction of all nodes is examined node by node.
FEW = 0.05
_UNNAMED = ""  # a name that no job can require, so that only the labels decide

_LabelConstraints = tuple[frozenset[str], frozenset[str]]  # (required or preferred labels, forbidden or avoided labels)


@dataclass(frozen=True)
class _Eligible:
    """The classes of nodes that are eligible for a request, apart from amounts."""

    hardware: frozenset[int]
    labels: frozenset[int]
    classes: frozenset[tuple[int, int]]  # existing (hardware, labels) pairs
    called: Mapping[str, bool]  # nodes that the request names → whether they are eligible
    few: frozenset[str] | None


@dataclass(frozen=True)
class _Preference:
    """Affinity scores for requests with the same preferred and avoided labels."""

    of_labels: Sequence[float]  # by class of labels
    of_named: Mapping[str, float]  # nodes that the requests name


@dataclass(frozen=True)
class CandidateNodes:
    """Candidate nodes of a job, in their current state: eligible ones that could hold it if they were empty."""

    nodes: Mapping[str, NodeCapacity]
    could_hold: Callable[[str], bool]
    avoided: Collection[str]
    few: frozenset[str] | None  # the eligible nodes, avoided ones included, where these are few; else None

    def __call__(self, name: str) -> NodeCapacity | None:
        could = name in self.few if self.few is not None else self.could_hold(name)
        return self.nodes[name] if could and name not in self.avoided else None


class NodeClasses:
    """Classes over nodes whose hardware and labels don't change."""

    def __init__(self, nodes: Mapping[str, NodeCapacity]) -> None:
        self._nodes = nodes
        self._hardware: dict[object, int] = {}
        self._labels: dict[frozenset[str], int] = {}
        self._samples: list[NodeCapacity] = []
        self._uniform: list[bool] = []
        self._labelled: list[NodeCapacity] = []  # one of each class of labels
        self._class_of = {name: self._classed(node) for name, node in nodes.items()}
        self._names: dict[tuple[int, int], list[str]] = {}
        for name in sorted(nodes):
            self._names.setdefault(self._class_of[name], []).append(name)
        self._known: dict[Request, _Eligible] = {}
        self._eligible_of: dict[tuple[frozenset[int], _LabelConstraints], _Eligible] = {}
        self._hardware_of: dict[Request, frozenset[int]] = {}
        self._labels_of: dict[_LabelConstraints, frozenset[int]] = {}
        self._few_of: dict[Request, frozenset[str]] = {}
        self._preferences: dict[_LabelConstraints, _Preference] = {}
        self._few_preferred: dict[Request, frozenset[str] | None] = {}

    def hardware(self, name: str) -> int:
        """The class of nodes with the same devices and capabilities."""
        return self._class_of[name][0]

    def candidates(self, request: Request, avoided: Collection[str]) -> "CandidateNodes":
        """A lookup for many nodes one after the other: those that could hold the request and are not avoided."""
        few = self.few(request)
        if few is not None and request not in self._few_of:
            self._few_of[request] = frozenset(filter(self.could_hold(request), few))
        return CandidateNodes(
            self._nodes, self.could_hold(request), avoided, None if few is None else self._few_of[request]
        )

    def could_hold(self, request: Request) -> Callable[[str], bool]:
        """Predicate by name: the node exists and would pass all filters if it were empty."""
        where = self._eligible(request)
        class_of, nodes, wanted = self._class_of, self._nodes, request.quantities
        hardware, classes, called = where.hardware, where.classes, where.called
        asks_no_amount = wanted == NOTHING

        def could(name: str) -> bool:
            found = class_of.get(name)
            if found is None or not (called[name] and found[0] in hardware if name in called else found in classes):
                return False
            if asks_no_amount:
                return True
            node = nodes[name]
            return (
                node.cpu_cores >= wanted.cpu_cores
                and node.ram_mb >= wanted.ram_mb
                and node.storage_mb >= wanted.storage_mb
            )

        return could

    def feasible(self, request: Request, but: Collection[str] = ()) -> Iterator[str]:
        """The nodes that could hold the request if they were empty, by name."""
        where = self._eligible(request)
        alike = [names for key, names in self._names.items() if key in where.classes]
        called = sorted(name for name, is_wanted in where.called.items() if is_wanted)
        by_name = (name for name, _ in groupby(heapq.merge(*alike, called)))
        could = self.could_hold(request)
        return (name for name in by_name if name not in but and could(name))

    def matches_labels(self, request: Request) -> Callable[[str], bool]:
        """Predicate by name: the node's labels and name match the request."""
        where, class_of = self._eligible(request), self._class_of
        labels, called = where.labels, where.called
        return lambda name: called[name] if name in called else class_of[name][1] in labels

    def few(self, request: Request) -> frozenset[str] | None:
        """The eligible nodes, where these are few; None when they are many."""
        return self._eligible(request).few

    def preference(self, request: Request) -> Callable[[str], float]:
        """Name → the value of ``scoring.preference`` for the node."""
        found, class_of = self._preference(request), self._class_of
        of_labels, named = found.of_labels, found.of_named
        return lambda name: named[name] if name in named else of_labels[class_of[name][1]]

    def few_preferred(self, request: Request) -> frozenset[str] | None:
        """The nodes with any preferred label, where these are few; all others score the same.

        None when they are many, or when the request avoids labels.
        """
        if request.avoided_labels:
            return None
        if request not in self._few_preferred:
            where, found = self._eligible(request), self._preference(request)
            classes = [key for key in where.classes if found.of_labels[key[1]] > 0]
            is_wanted, prefers = self.matches_labels(request), self.preference(request)
            named = where.called.keys() | found.of_named.keys()
            called = {name: is_wanted(name) and prefers(name) > 0 for name in named}
            self._few_preferred[request] = self._few(classes, called)
        return self._few_preferred[request]

    def is_uniform(self, hardware: int) -> bool:
        """Whether all devices of such a node have one type, size and link group."""
        return self._uniform[hardware]

    def fits_hardware(self, request: Request, hardware: int) -> bool:
        return hardware in self._eligible(request).hardware

    def _classed(self, node: NodeCapacity) -> tuple[int, int]:
        devices = tuple(sorted((d.type, d.memory_mb, _group_of(d)) for d in node.devices))
        key = devices, node.capabilities, node.accepts_training, node.accepts_inference
        hardware = self._hardware.setdefault(key, len(self._hardware))
        if hardware == len(self._samples):
            self._samples.append(node)
            self._uniform.append(len(set(devices)) == 1)
        labels = self._labels.setdefault(node.labels, len(self._labels))
        if labels == len(self._labelled):
            self._labelled.append(NodeCapacity(name=_UNNAMED, devices=(), free=frozenset(), labels=node.labels))
        return hardware, labels

    def _eligible(self, request: Request) -> _Eligible:
        where = self._known.get(request)
        if where is None:
            key = self._hardware_for(request.for_devices), (request.required_labels, request.forbidden_labels)
            if key not in self._eligible_of:
                self._eligible_of[key] = self._found(*key)
            where = self._known[request] = self._eligible_of[key]
        return where

    def _hardware_for(self, devices: Request) -> frozenset[int]:
        if devices not in self._hardware_of:
            fitting = (number for number, node in enumerate(self._samples) if not could_fit(devices, node))
            self._hardware_of[devices] = frozenset(fitting)
        return self._hardware_of[devices]

    def _found(self, hardware: frozenset[int], constraints: _LabelConstraints) -> _Eligible:
        probe = Request(required_labels=constraints[0], forbidden_labels=constraints[1])
        if constraints not in self._labels_of:
            fitting = (number for number, node in enumerate(self._labelled) if _has_required_labels(probe, node))
            self._labels_of[constraints] = frozenset(fitting)
        labels, called_for = (
            self._labels_of[constraints],
            {word for term in constraints[0] for word in term.split(EITHER)},
        )
        named = (called_for | constraints[1]) & self._nodes.keys()
        called = {name: _has_required_labels(probe, self._nodes[name]) for name in named}
        classes = frozenset(key for key in self._names if key[0] in hardware and key[1] in labels)
        return _Eligible(hardware, labels, classes, called, self._few(classes, called))

    def _preference(self, request: Request) -> _Preference:
        constraints = request.preferred_labels, request.avoided_labels
        if constraints not in self._preferences:
            probe = Request(preferred_labels=constraints[0], avoided_labels=constraints[1])
            words = {word for term in constraints[0] for word in term.split(EITHER)} | constraints[1]
            of_labels = [preference(probe, node) for node in self._labelled]
            of_named = {name: preference(probe, self._nodes[name]) for name in words & self._nodes.keys()}
            self._preferences[constraints] = _Preference(of_labels, of_named)
        return self._preferences[constraints]

    def _few(self, classes: Collection[tuple[int, int]], called: Mapping[str, bool]) -> frozenset[str] | None:
        at_most = len(self._nodes) * FEW
        if sum(len(self._names[key]) for key in classes) > at_most:
            return None
        found = [name for key in classes for name in self._names[key]]
        if called:
            found = [name for name in found if name not in called]
            found += [name for name, is_wanted in called.items() if is_wanted]
        return frozenset(found) if len(found) <= at_most else None


def amount_free(node: NodeCapacity) -> object:
    """Equivalence key of the free devices and shares by type and project, whatever their index, and of link groups."""
    named = {device.index: (device.type, device.memory_mb) for device in node.devices}
    free = Counter(named[index] for index in node.free)
    parts = Counter((named[index], part, node.tenants.get(index)) for index, part in node.parts.items())
    linked: dict[int, list[object]] = {}
    for device in node.devices:
        if device.link_group is not None and device.index in node.free:
            linked.setdefault(device.link_group, []).append(named[device.index])
    groups = Counter(frozenset(Counter(group).items()) for group in linked.values())
    return frozenset(free.items()), frozenset(parts.items()), frozenset(groups.items())


def _group_of(device: Device) -> int:
    return -1 if device.link_group is None else device.link_group


def _has_required_labels(request: Request, node: NodeCapacity) -> bool:
    return not any(check(request, node) for check in LABEL_FILTERS.values())
