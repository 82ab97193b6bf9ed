"""Which nodes could ever hold a request, where there are too many of both to ask the filters of every pair.

The filters are asked of one node of each class: of those with the same devices and capabilities, and of those with the
same labels. Amounts are compared with each node's own.
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

# Of all: so many nodes are looked at one by one.
FEW = 0.05
_NOBODY = ""  # a name that no job calls for: what is left are the labels

_Wishes = tuple[frozenset[str], frozenset[str]]  # labels it wants, and labels it does not


@dataclass(frozen=True)
class _Where:
    """The classes of nodes that a request may be given, whatever amounts it asks for."""

    hardware: frozenset[int]
    labels: frozenset[int]
    classes: frozenset[tuple[int, int]]  # the two together, of which there are nodes
    called: Mapping[str, bool]  # nodes that it calls by their names → whether it wants them
    few: frozenset[str] | None


@dataclass(frozen=True)
class _Preference:
    """What nodes are worth to requests that prefer and avoid the same labels."""

    of_labels: Sequence[float]  # by class of labels
    of_named: Mapping[str, float]  # nodes that they call by their names


@dataclass(frozen=True)
class Given:
    """The nodes, as they are when one is asked for, that may be given to a job and could hold it, were they empty."""

    nodes: Mapping[str, NodeCapacity]
    could_hold: Callable[[str], bool]
    avoided: Collection[str]
    few: frozenset[str] | None  # all of them but those it avoids, where these are few; else None

    def __call__(self, name: str) -> NodeCapacity | None:
        could = name in self.few if self.few is not None else self.could_hold(name)
        return self.nodes[name] if could and name not in self.avoided else None


class NodeClasses:
    """Of nodes whose hardware and labels don't change."""

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
        self._known: dict[Request, _Where] = {}
        self._where_of: dict[tuple[frozenset[int], _Wishes], _Where] = {}
        self._hardware_of: dict[Request, frozenset[int]] = {}
        self._labels_of: dict[_Wishes, frozenset[int]] = {}
        self._few_of: dict[Request, frozenset[str]] = {}
        self._preferences: dict[_Wishes, _Preference] = {}
        self._few_preferred: dict[Request, frozenset[str] | None] = {}

    def hardware(self, name: str) -> int:
        """The class of nodes with the same devices and capabilities."""
        return self._class_of[name][0]

    def given(self, request: Request, avoided: Collection[str]) -> "Given":
        """Of many nodes that are asked for one after the other those that could hold it, and are not avoided."""
        few = self.few(request)
        if few is not None and request not in self._few_of:
            self._few_of[request] = frozenset(filter(self.could_hold(request), few))
        return Given(self._nodes, self.could_hold(request), avoided, None if few is None else self._few_of[request])

    def could_hold(self, request: Request) -> Callable[[str], bool]:
        """Name → whether there is such a node, and it passes all filters, were it empty."""
        where = self._where(request)
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

    def holding(self, request: Request, but: Collection[str] = ()) -> Iterator[str]:
        """The nodes that could hold it, by name."""
        where = self._where(request)
        alike = [names for key, names in self._names.items() if key in where.classes]
        called = sorted(name for name, is_wanted in where.called.items() if is_wanted)
        by_name = (name for name, _ in groupby(heapq.merge(*alike, called)))
        could = self.could_hold(request)
        return (name for name in by_name if name not in but and could(name))

    def is_called_for(self, request: Request) -> Callable[[str], bool]:
        """Name → whether its labels and the name itself are those that the job wants."""
        where, class_of = self._where(request), self._class_of
        labels, called = where.labels, where.called
        return lambda name: called[name] if name in called else class_of[name][1] in labels

    def few(self, request: Request) -> frozenset[str] | None:
        """The nodes that it calls for, where these are few of all; None when they are many."""
        return self._where(request).few

    def preference(self, request: Request) -> Callable[[str], float]:
        """Name → what ``scoring.preference`` says of the node."""
        found, class_of = self._preference(request), self._class_of
        of_labels, named = found.of_labels, found.of_named
        return lambda name: named[name] if name in named else of_labels[class_of[name][1]]

    def few_preferred(self, request: Request) -> frozenset[str] | None:
        """The nodes that have any of what it prefers, where these are few of all, and all others are equal to it.

        None when they are many, or when it avoids any.
        """
        if request.avoided_labels:
            return None
        if request not in self._few_preferred:
            where, found = self._where(request), self._preference(request)
            classes = [key for key in where.classes if found.of_labels[key[1]] > 0]
            is_wanted, prefers = self.is_called_for(request), self.preference(request)
            named = where.called.keys() | found.of_named.keys()
            called = {name: is_wanted(name) and prefers(name) > 0 for name in named}
            self._few_preferred[request] = self._few(classes, called)
        return self._few_preferred[request]

    def is_uniform(self, hardware: int) -> bool:
        """Whether all devices of such a node are of one type, size and link group."""
        return self._uniform[hardware]

    def fits_hardware(self, request: Request, hardware: int) -> bool:
        return hardware in self._where(request).hardware

    def _classed(self, node: NodeCapacity) -> tuple[int, int]:
        devices = tuple(sorted((d.type, d.memory_mb, _group_of(d)) for d in node.devices))
        key = devices, node.capabilities, node.accepts_training
        hardware = self._hardware.setdefault(key, len(self._hardware))
        if hardware == len(self._samples):
            self._samples.append(node)
            self._uniform.append(len(set(devices)) == 1)
        labels = self._labels.setdefault(node.labels, len(self._labels))
        if labels == len(self._labelled):
            self._labelled.append(NodeCapacity(name=_NOBODY, devices=(), free=frozenset(), labels=node.labels))
        return hardware, labels

    def _where(self, request: Request) -> _Where:
        where = self._known.get(request)
        if where is None:
            key = self._hardware_for(request.for_devices), (request.required_labels, request.forbidden_labels)
            if key not in self._where_of:
                self._where_of[key] = self._found(*key)
            where = self._known[request] = self._where_of[key]
        return where

    def _hardware_for(self, devices: Request) -> frozenset[int]:
        if devices not in self._hardware_of:
            fitting = (number for number, node in enumerate(self._samples) if not could_fit(devices, node))
            self._hardware_of[devices] = frozenset(fitting)
        return self._hardware_of[devices]

    def _found(self, hardware: frozenset[int], wishes: _Wishes) -> _Where:
        wished = Request(required_labels=wishes[0], forbidden_labels=wishes[1])
        if wishes not in self._labels_of:
            fitting = (number for number, node in enumerate(self._labelled) if _is_called_for(wished, node))
            self._labels_of[wishes] = frozenset(fitting)
        labels, called_for = self._labels_of[wishes], {word for wish in wishes[0] for word in wish.split(EITHER)}
        named = (called_for | wishes[1]) & self._nodes.keys()
        called = {name: _is_called_for(wished, self._nodes[name]) for name in named}
        classes = frozenset(key for key in self._names if key[0] in hardware and key[1] in labels)
        return _Where(hardware, labels, classes, called, self._few(classes, called))

    def _preference(self, request: Request) -> _Preference:
        wishes = request.preferred_labels, request.avoided_labels
        if wishes not in self._preferences:
            wished = Request(preferred_labels=wishes[0], avoided_labels=wishes[1])
            words = {word for wish in wishes[0] for word in wish.split(EITHER)} | wishes[1]
            of_labels = [preference(wished, node) for node in self._labelled]
            of_named = {name: preference(wished, self._nodes[name]) for name in words & self._nodes.keys()}
            self._preferences[wishes] = _Preference(of_labels, of_named)
        return self._preferences[wishes]

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
    """How much of how many of its devices is free, whichever they are, and how many of one link group."""
    named = {device.index: (device.type, device.memory_mb) for device in node.devices}
    free = Counter(named[index] for index in node.free)
    parts = Counter((named[index], part) for index, part in node.parts.items())
    linked: dict[int, list[object]] = {}
    for device in node.devices:
        if device.link_group is not None and device.index in node.free:
            linked.setdefault(device.link_group, []).append(named[device.index])
    groups = Counter(frozenset(Counter(group).items()) for group in linked.values())
    return frozenset(free.items()), frozenset(parts.items()), frozenset(groups.items())


def _group_of(device: Device) -> int:
    return -1 if device.link_group is None else device.link_group


def _is_called_for(request: Request, node: NodeCapacity) -> bool:
    return not any(check(request, node) for check in LABEL_FILTERS.values())
