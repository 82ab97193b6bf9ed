"""Filters: hard constraints that decide whether a job fits on a node; each reason is written for users."""

import heapq
import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

from app.domain.names import EITHER
from app.domain.scheduling.resources import Device, NodeCapacity, Request
from app.domain.scheduling.topology import together
from app.domain.units import WHOLE

# An A100-80GB reports 81 920 MB, an H100-80GB 81 559: a nominal size is met within this tolerance.
MEMORY_TOLERANCE = 0.95
NAMED = 3  # nodes in a sentence


@dataclass(frozen=True, kw_only=True)
class FilterResult:
    """Result of one filter for a node; ``reason`` is empty when the node passes."""

    filter: str
    reason: str

    @property
    def passed(self) -> bool:
        return not self.reason


def usable_devices(request: Request, node: NodeCapacity) -> list[Device]:
    """The devices of a node, free or not, with the requested kind, type and memory."""
    return usable_of(request, node.devices)


def usable_of(request: Request, devices: Sequence[Device]) -> list[Device]:
    """Those of ``devices`` with the requested kind, type and memory."""
    if request.device_kind == "cpu":
        return [d for d in devices if d.is_cpu]
    # Hot path: called for every node and most requests; few requests name a type or a memory.
    found = [d for d in devices if not d.is_cpu and d.mig_profile == request.mig_profile]
    if request.gpu_types:
        found = [d for d in found if is_of_type(request, d)]
    if request.gpu_memory_min_mb or request.gpu_memory_request_mb:
        found = [d for d in found if has_memory(request, d)]
    return found


def is_of_type(request: Request, device: Device) -> bool:
    """Whether the device is one of the requested chips, with the memory named for that chip."""
    return not request.gpu_types or any(
        each.name in ("", device.chip) and device.memory_mb >= each.memory_mb * MEMORY_TOLERANCE
        for each in request.gpu_types
    )


def has_memory(request: Request, device: Device) -> bool:
    """Whether the share of the device that the job would take has the requested memory."""
    return (
        device.memory_mb >= request.gpu_memory_request_mb * MEMORY_TOLERANCE
        and part_mb(request, device) >= request.gpu_memory_min_mb * MEMORY_TOLERANCE
    )


def share_on(request: Request, device: Device) -> int:
    """The share of a usable device that the job would take, in hundredths."""
    if not request.gpu_memory_request_mb:
        return request.gpu_share
    return min(WHOLE, math.ceil(WHOLE * request.gpu_memory_request_mb / device.memory_mb))


def part_mb(request: Request, device: Device) -> int:
    """Memory of that share in MB."""
    share = share_on(request, device)
    return device.memory_mb if share == WHOLE else device.memory_mb * share // WHOLE


def open_devices(request: Request, node: NodeCapacity) -> list[Device]:
    """The usable devices with enough free for the job now."""
    if not request.takes_part:
        return usable_of(request, [d for d in node.devices if d.index in node.free])
    begun = [d for d in node.devices if d.index in node.free or _is_begun(request, node, d)]
    return [d for d in usable_of(request, begun) if node.left(d.index) >= share_on(request, d)]


def _is_begun(request: Request, node: NodeCapacity, device: Device) -> bool:
    return device.index in node.parts and node.is_open_to(device.index, request.tenant)


def _enough_devices(request: Request, node: NodeCapacity) -> str:
    usable = len(usable_devices(request, node))
    if usable >= request.device_count:
        return ""
    if not usable and not any(_is_alike(request, d) for d in node.devices):
        return f"has no {_noun(request)}"
    return f"has {usable} of {request.device_count} such devices"


def _is_alike(request: Request, device: Device) -> bool:
    """Whether the device has the requested kind and chip, whatever its memory."""
    if request.device_kind == "cpu" or device.is_cpu:
        return device.is_cpu and request.device_kind == "cpu"
    names = request.gpu_type_names
    return device.mig_profile == request.mig_profile and (not names or device.chip in names)


def _noun(request: Request) -> str:
    if request.mig_profile:
        return f"slice {request.mig_profile} of {request.gpu_type or 'a GPU'}"
    return "CPU slot" if request.device_kind == "cpu" else request.gpu_type or "GPU"


def _enough_cpu(request: Request, node: NodeCapacity) -> str:
    return "" if node.cpu_cores >= request.cpu_cores else f"has {node.cpu_cores} of {request.cpu_cores} CPU cores"


def _enough_ram(request: Request, node: NodeCapacity) -> str:
    return "" if node.ram_mb >= request.ram_min_mb else f"has {node.ram_mb} of {request.ram_min_mb} MB memory"


def _enough_storage(request: Request, node: NodeCapacity) -> str:
    enough = node.storage_mb >= request.storage_min_mb
    return "" if enough else f"has {node.storage_mb} of {request.storage_min_mb} MB storage"


def _has_capabilities(request: Request, node: NodeCapacity) -> str:
    missing = request.required_capabilities - node.capabilities
    if not missing:
        return ""
    demanded = sorted(missing & request.demanded)
    whose = f" (its project demands {', '.join(demanded)})" if demanded else ""
    return f"lacks the capabilities {', '.join(sorted(missing))}{whose}"


def _has_required_labels(request: Request, node: NodeCapacity) -> str:
    missing = missing_labels(request, node)
    return f"is not labelled {', '.join(missing)} (required_node_labels)" if missing else ""


def missing_labels(request: Request, node: NodeCapacity) -> list[str]:
    """Required labels, in words, that the node does not have."""
    absent = sorted(request.required_labels - node.known_as)
    return [term.replace(EITHER, " or ") for term in absent if not satisfies(node.known_as, term)]


def satisfies(known_as: frozenset[str], term: str) -> bool:
    """Whether the node matches the label, or one of several alternatives."""
    return not known_as.isdisjoint(term.split(EITHER))


def _has_no_forbidden_label(request: Request, node: NodeCapacity) -> str:
    unwanted = sorted(request.forbidden_labels & node.known_as)
    return f"is {', '.join(unwanted)} (forbidden_node_labels)" if unwanted else ""


def _accepts_training(request: Request, node: NodeCapacity) -> str:
    accepted = node.accepts_training or not request.trains
    return "" if accepted else "takes no trainings (accept_training in node.toml)"


def _accepts_inference(request: Request, node: NodeCapacity) -> str:
    accepted = node.accepts_inference or request.trains
    return "" if accepted else "takes trainings only (accept_inference in node.toml)"


def _has_room_for_a_job(_: Request, node: NodeCapacity) -> str:
    if node.max_jobs is None or node.active_jobs < node.max_jobs:
        return ""
    return f"runs {node.active_jobs} of at most {node.max_jobs} jobs (max_concurrent in node.toml)"


def _has_free_devices(request: Request, node: NodeCapacity) -> str:
    free = len(open_devices(request, node))
    if free >= request.device_count:
        return ""
    if request.takes_part:
        return f"{_most_left(request, node)} is free{_of_others(request, node)}{_unavailable(node)}"
    return f"{free} of {request.device_count} such devices are free{_unavailable(node)}"


def _has_free_amounts(request: Request, node: NodeCapacity) -> str:
    short = _short_amounts(request, node)
    return f"has free: {', '.join(short)}" if short else ""


# Returns "" when the node passes, else the reason why it does not.
Filter = Callable[[Request, NodeCapacity], str]
# Filters on labels and name, and filters on amounts. No other filter reads these, so the results of the others hold
# for all nodes with the same devices and capabilities.
LABEL_FILTERS: Mapping[str, Filter] = MappingProxyType(
    {"required_node_labels": _has_required_labels, "forbidden_node_labels": _has_no_forbidden_label}
)
_AMOUNT_FILTERS: Mapping[str, Filter] = MappingProxyType(
    {"cpu_cores": _enough_cpu, "ram": _enough_ram, "storage": _enough_storage}
)
FILTERS: Mapping[str, Filter] = MappingProxyType(
    {
        "accepts_training": _accepts_training,
        "accepts_inference": _accepts_inference,
        "devices": _enough_devices,
        **_AMOUNT_FILTERS,
        "required_capabilities": _has_capabilities,
        **LABEL_FILTERS,
    }
)
# Filters on what running jobs leave free; their results change with every start and end.
FREE: Mapping[str, Filter] = MappingProxyType(
    {"free_jobs": _has_room_for_a_job, "free_devices": _has_free_devices, "free_amounts": _has_free_amounts}
)


def could_fit(request: Request, node: NodeCapacity) -> str:
    """Why the node could never hold the job, even empty; "" when it could."""
    return next((reason for check in FILTERS.values() if (reason := check(request, node))), "")


def examine(request: Request, node: NodeCapacity) -> list[FilterResult]:
    """The result of every filter, those on free resources last."""
    return [FilterResult(filter=name, reason=check(request, node)) for name, check in (*FILTERS.items(), *FREE.items())]


def choose_devices(request: Request, node: NodeCapacity) -> tuple[Device, ...] | None:
    """Choose free devices of the node for the job, lowest index first; None when too little is free.

    A share is placed by best fit on a device that is shared already, so that whole devices stay whole. Whole devices
    come from one link group, if possible.
    """
    if _has_room_for_a_job(request, node) or _short_amounts(request, node):
        return None
    free = open_devices(request, node)
    if len(free) < request.device_count:
        return None
    if request.takes_part:
        free = _best_fit(request, node, free)
    return together(node, free, request.device_count)


def _best_fit(request: Request, node: NodeCapacity, free: Sequence[Device]) -> list[Device]:
    """Best fit; unused devices are taken only if there are no others."""
    ranks = [(device.index in node.free, left_after(request, node, device)) for device in free]
    best = min(ranks)
    return [device for device, rank in zip(free, ranks, strict=True) if rank == best]


def left_after(request: Request, node: NodeCapacity, device: Device) -> int:
    """The share of an open device that would stay free after the job."""
    return node.left(device.index) - share_on(request, device)


def describe(request: Request) -> str:
    """The devices asked for, in words: ``2 a100 or h100``, ``0.5 of 1 h100``, ``1 CPU slot``."""
    kind = request.gpu_type or {"cpu": "CPU slot", "cuda": "GPU"}[request.device_kind]
    plural = "s" if request.device_count != 1 and not request.gpu_type else ""
    if request.mig_profile:
        return f"{request.device_count} slice {request.mig_profile} of {request.gpu_type or 'a GPU'}"
    return f"{_part_asked_for(request)}{request.device_count} {kind}{plural}"


def explain(request: Request, nodes: Sequence[NodeCapacity], avoided: Collection[str] = ()) -> str:
    """Why a job does not start now, with counts, type and what is free; ``avoided`` nodes are excluded."""
    given = [n for n in nodes if n.name not in avoided]
    fitting = [n for n in given if not could_fit(request, n)]
    return pending_reason_for(request, with_most_free(request, fitting), given[:NAMED]) + excluded(avoided)


def with_most_free(request: Request, nodes: Iterable[NodeCapacity]) -> list[NodeCapacity]:
    """The ``NAMED`` nodes with the most free devices."""
    return heapq.nsmallest(NAMED, nodes, key=lambda n: (-len(open_devices(request, n)), n.name))


def pending_reason_for(request: Request, emptiest: Sequence[NodeCapacity], others: Sequence[NodeCapacity]) -> str:
    """Explain by the feasible nodes with most free devices first; without feasible ones, by ``others``."""
    if not emptiest and not others:
        return f"needs {describe(request)}; no node is ready"
    if not emptiest:
        why = "; ".join(f"{n.name} {could_fit(request, n)}" for n in others)
        return f"needs {describe(request)} on one node; no ready node has that: {why}"
    listed = what_is_free(request, emptiest)
    return f"needs {describe(request)} on one node; free: {listed}{_way_out(request, emptiest[0])}"


def what_is_free(request: Request, nodes: Iterable[NodeCapacity]) -> str:
    """In words: ``1 on a, 0 on b (2 reserved for jobs that come first)``."""
    return ", ".join(
        f"{_free(request, n)} on {n.name}{_of_others(request, n)}{_unavailable(n)}{_full(request, n)}" for n in nodes
    )


def excluded(avoided: Collection[str]) -> str:
    return f"; not on {', '.join(sorted(avoided))}, where it failed repeatedly" if avoided else ""


def _way_out(request: Request, node: NodeCapacity) -> str:
    """What is missing on the node with most free devices, or how many devices would fit there now."""
    devices = len(open_devices(request, node))
    if devices >= request.device_count:
        short = _short_amounts(request, node)
        return f"; {node.name} has free: {', '.join(short)}" if short else ""
    if devices and choose_devices(replace(request, device_count=devices), node) is not None:
        return f"; gpu_count {devices} would fit on {node.name} now"
    return ""


def _part_asked_for(request: Request) -> str:
    if request.gpu_memory_request_mb:
        return f"{request.gpu_memory_request_mb} MB of "
    return f"{request.gpu_share / WHOLE:g} of " if request.takes_part else ""


def _free(request: Request, node: NodeCapacity) -> str:
    return _most_left(request, node) if request.takes_part else str(len(open_devices(request, node)))


def _most_left(request: Request, node: NodeCapacity) -> str:
    """The largest share that is free for the job, in words: ``0.3 of device 2``."""
    usable = [d for d in usable_devices(request, node) if node.is_open_to(d.index, request.tenant)]
    most = max(usable, key=lambda d: node.left(d.index), default=None)
    left = node.left(most.index) if most is not None else 0
    return f"{left / WHOLE:g} of device {most.index}" if most is not None and left else "nothing"


def _of_others(request: Request, node: NodeCapacity) -> str:
    """Parts that only jobs of other projects may take."""
    closed = [d for d in usable_devices(request, node) if d.index in node.parts and not _is_begun(request, node, d)]
    return f" ({len(closed)} shared by jobs of other projects)" if request.takes_part and closed else ""


def _unavailable(node: NodeCapacity) -> str:
    if node.no_sandbox:
        return f" ({node.no_sandbox})"
    parts = [f"{len(node.out_of_service)} out of service"] if node.out_of_service else []
    parts += [f"{len(node.reserved)} reserved for jobs that come first"] if node.reserved else []
    return f" ({', '.join(parts)})" if parts else ""


def _full(request: Request, node: NodeCapacity) -> str:
    why = _has_room_for_a_job(request, node)
    return f", which {why}" if why else ""


def _short_amounts(request: Request, node: NodeCapacity) -> list[str]:
    held = node.held
    asked = (
        (request.cpu_cores, node.cpu_cores - held.cpu_cores, "CPU cores"),
        (request.ram_min_mb, node.ram_mb - held.ram_mb, "MB memory"),
        (request.storage_min_mb, node.storage_mb - held.storage_mb, "MB storage"),
    )
    return [f"{max(0, free)} of {wanted} {unit}" for wanted, free, unit in asked if wanted > free]


def avoided(request: Request, avoids: frozenset[str], nodes: Mapping[str, NodeCapacity]) -> frozenset[str]:
    """The nodes to exclude for a job: those it avoids, unless too few others could ever hold it."""
    if avoids.isdisjoint(nodes):
        return frozenset()
    could = {node.name for node in nodes.values() if not could_fit(request, node)}
    return avoids & could if len(could - avoids) >= request.node_count else frozenset()
