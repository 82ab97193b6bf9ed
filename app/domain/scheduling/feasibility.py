"""Feasibility: whether any node could ever hold a job, and if not, which request is too large and what would fit."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from app.domain.errors import CannotFit
from app.domain.names import EITHER
from app.domain.scheduling import gang_placement
from app.domain.scheduling.filters import could_fit, describe, is_of_type, missing_labels, part_mb, usable_devices
from app.domain.scheduling.resources import NodeCapacity, Request
from app.domain.scheduling.roles.neighbours import of_other_images
from app.domain.scheduling.roles.packing import can_pack, emptied
from app.domain.scheduling.roles.reasons import affinity_of, asked_for, with_one_image, without_affinity
from app.domain.spec.frameworks.requirements import how_to_offer
from app.domain.spec.model import JobDocument
from app.domain.suggestions import did_you_mean
from app.domain.units import WHOLE

# (field, the node's amount, the request with exactly that amount)
_QUANTITIES: tuple[tuple[str, Callable[[Request, NodeCapacity], int], Callable[[Request, int], Request]], ...] = (
    ("gpu_count", lambda r, n: len(usable_devices(r, n)), lambda r, v: replace(r, device_count=v)),
    (
        "gpu_memory_min_mb",
        lambda r, n: _nth_memory(replace(r, gpu_memory_min_mb=0), n),
        lambda r, v: replace(r, gpu_memory_min_mb=v),
    ),
    (
        "gpu_memory_request_mb",
        lambda r, n: _nth_memory(replace(r, gpu_memory_request_mb=0), n) if r.gpu_memory_request_mb else 0,
        lambda r, v: replace(r, gpu_memory_request_mb=v),
    ),
    ("cpu_cores", lambda _, n: n.cpu_cores, lambda r, v: replace(r, cpu_cores=v)),
    ("ram_min_mb", lambda _, n: n.ram_mb, lambda r, v: replace(r, ram_min_mb=v)),
    ("storage_min_mb", lambda _, n: n.storage_mb, lambda r, v: replace(r, storage_min_mb=v)),
)


# Fields that make a job with device_type auto a GPU job, besides a GPU type or a MIG slice.
_OF_A_GPU: Mapping[str, Callable[[Request], bool]] = {
    "gpu_memory_min_mb": lambda request: request.gpu_memory_min_mb > 0,
    "gpu_memory_request_mb": lambda request: request.gpu_memory_request_mb > 0,
    "gpu_fraction": lambda request: request.gpu_share < WHOLE,
}


def waits_for_node(document: JobDocument) -> bool:
    """Whether the job is accepted also while no node could ever hold it."""
    return document.scheduling_config.wait_for_node


def refuse_unfitting(request: Request, nodes: Sequence[NodeCapacity]) -> None:
    """Raise CannotFit, naming the largest value that would fit, when no registered node could hold the job even empty.

    Without registered nodes every request is accepted.
    """
    if not nodes:
        return
    if request.roles:
        _refuse_unfitting_roles(request, nodes)
        return
    if any(not could_fit(request, node) for node in nodes):
        _refuse_too_many_nodes(request, nodes)
        return
    _refuse_unknown_type(request, nodes)
    _refuse_missing_capabilities(request, nodes)
    _refuse_labels(request, nodes)
    for field, has, asking in _QUANTITIES:
        fitting = [(has(request, n), n.name) for n in nodes if _fits_with(asking(request, has(request, n)), n)]
        if fitting:
            value, name = max(fitting)
            most = f"{value} MB" if field.endswith("_mb") else value
            raise CannotFit(
                f"no node could ever hold this job; the largest {field} that would fit is {most}, on node {name}",
                field=f"resource_config.{field}",
            )
    why = "; ".join(f"{node.name} {could_fit(request, node)}" for node in nodes[:3])
    raise CannotFit(
        f"needs {describe(request)} on one node; no node could ever give that: {why}{_largest(nodes)}",
        field="resource_config",
    )


def _refuse_unfitting_roles(request: Request, nodes: Sequence[NodeCapacity]) -> None:
    """Raise, naming the role, when no node could hold one of its instances, or the nodes not all of them together."""
    for number, role in enumerate(request.roles):
        try:
            refuse_unfitting(role.each, nodes)
        except CannotFit as error:
            if error.field is not None and error.field.startswith("resource_config"):
                error.field = f"tasks.{number}.{error.field}"
            raise
    empty = list(map(emptied, nodes))
    if not can_pack(request, empty):
        _refuse_affinity(request, empty)
        raise CannotFit(
            f"needs {asked_for(request)}; all nodes together could not hold that, even when nothing runs on them: ask "
            "for fewer instances, or for fewer devices in each",
            field="tasks",
        )


def _refuse_affinity(request: Request, nodes: Sequence[NodeCapacity]) -> None:
    """Raise, naming what is in the way, when the instances would fit with one image or without affinity."""
    required = [number for number, role in enumerate(request.roles) if any(each.required for each in role.affinity)]
    images = [other for one, other in of_other_images(request) if one < other]
    if not (required or images) or not can_pack(without_affinity(request), nodes):
        return
    ways_out = ["set required to false"] if required else []
    if images and can_pack(with_one_image(request), nodes):
        ways_out, required = ["give the roles one image"], []
    elif images and not can_pack(without_affinity(request, keeps_images=True), nodes):
        ways_out.append("give the roles one image")
    raise CannotFit(
        f"needs {asked_for(request)}, and {affinity_of(request)}; all nodes together could not hold that, even "
        f"when nothing runs on them: ask for fewer or smaller instances, or {' and '.join(ways_out)}",
        field=f"tasks.{required[0]}.affinity" if required else f"tasks.{images[0]}.resource_config.image",
    )


def _refuse_too_many_nodes(request: Request, nodes: Sequence[NodeCapacity]) -> None:
    """Raise when some nodes could hold a part of a gang, but fewer than the gang requests."""
    alike = gang_placement.most_alike(request, nodes)
    if alike < request.node_count:
        raise CannotFit(
            f"needs {gang_placement.asked_for(request)}; the largest node_count that would fit is {alike}",
            field="resource_config.node_count",
        )


def _refuse_unknown_type(request: Request, nodes: Sequence[NodeCapacity]) -> None:
    known = sorted({d.chip for n in nodes for d in n.devices if not d.is_cpu})
    types = request.gpu_type_names
    if types and not set(types) & set(known):
        # Not what is spelled alike: an h100 is no a100.
        meant = next(
            (f" (did you mean {chip}?)" for chip in known for each in types if each.startswith(f"{chip}-")), ""
        )
        way_out = f"known: {', '.join(known)}{meant}" if known else "no GPU is registered: ask for device_type cpu"
        raise CannotFit(
            f"no node ever had a GPU of type {' or '.join(map(repr, types))}; {way_out}{_largest(nodes)}",
            field="resource_config.gpu_type",
        )
    _refuse_unknown_slice(request, nodes)
    _refuse_missing_size(request, nodes)
    if request.device_kind == "cuda" and not known:
        _refuse_without_gpus(request, nodes)


def _refuse_without_gpus(request: Request, nodes: Sequence[NodeCapacity]) -> None:
    asked = [name for name, value in _OF_A_GPU.items() if value(request)]
    way_out = f"leave {' and '.join(asked)} out" if asked else "ask for device_type cpu or auto"
    raise CannotFit(
        f"no GPU is registered; {way_out} to train on CPU slots{_largest(nodes)}",
        field=f"resource_config.{asked[0]}" if asked else "resource_config.device_type",
    )


def _refuse_unknown_slice(request: Request, nodes: Sequence[NodeCapacity]) -> None:
    profiles = sorted({d.mig_profile for n in nodes for d in n.devices if d.mig_profile})
    if request.mig_profile and request.mig_profile not in profiles:
        raise CannotFit(
            f"no node ever had a MIG slice {request.mig_profile}; known: {', '.join(profiles) or 'none'}"
            f"{did_you_mean(request.mig_profile, profiles)}",
            field="resource_config.mig_profile",
        )


def _refuse_missing_size(request: Request, nodes: Sequence[NodeCapacity]) -> None:
    """Raise when there is such a chip, but none with as much memory as the type names."""
    names = {each.name for each in request.gpu_types}
    named = [d for n in nodes for d in n.devices if not d.is_cpu and ("" in names or d.chip in names)]
    if named and not any(is_of_type(request, device) for device in named):
        largest = max(named, key=lambda device: device.memory_mb)
        raise CannotFit(
            f"no node ever had a GPU with the memory that gpu_type names; the largest {largest.type} has "
            f"{largest.memory_mb} MB",
            field="resource_config.gpu_type",
        )


def _refuse_missing_capabilities(request: Request, nodes: Sequence[NodeCapacity]) -> None:
    bare = replace(request, required_capabilities=frozenset())
    offers = sorted({c for n in nodes if not could_fit(bare, n) for c in n.capabilities})
    if any(not could_fit(bare, n) for n in nodes):
        raise CannotFit(
            f"no node that could hold this job has {', '.join(sorted(request.required_capabilities))}; "
            f"offered: {', '.join(offers) or 'none'}{_how_to_offer(request, offers)}",
            field="scheduling_config.required_capabilities",
        )


def _how_to_offer(request: Request, offers: Sequence[str]) -> str:
    missing = sorted(request.required_capabilities.difference(offers))
    return "".join(f". {why}" for why in map(how_to_offer, missing) if why)


def _refuse_labels(request: Request, nodes: Sequence[NodeCapacity]) -> None:
    """Raise when only the labels exclude the job from every node that has the requested resources."""
    probe = frozenset[str]()
    bare = replace(request, required_labels=probe, forbidden_labels=probe)
    holding = [node for node in nodes if not could_fit(bare, node)]
    if not holding:
        return
    if all(could_fit(replace(bare, required_labels=request.required_labels), node) for node in holding):
        constraints = ", ".join(sorted(request.required_labels)).replace(EITHER, " or ")
        raise CannotFit(
            f"no node with {describe(request)} is labelled {constraints}; "
            f"those that could hold this job are {_labelled(holding)}; use node_affinity for preferences",
            field="resource_config.required_node_labels",
        )
    called = [node for node in holding if not missing_labels(request, node)]
    raise CannotFit(
        f"every node with {describe(request)} and the required labels has a forbidden one: {_labelled(called)}; "
        "use node_anti_affinity for preferences",
        field="resource_config.forbidden_node_labels",
    )


def _labelled(nodes: Sequence[NodeCapacity]) -> str:
    listed = [f"{node.name} ({', '.join(sorted(node.labels)) or 'no labels'})" for node in nodes[:3]]
    return ", ".join(listed) + (f" and {len(nodes) - 3} more" if len(nodes) > 3 else "")


def _fits_with(request: Request, node: NodeCapacity) -> bool:
    return request.device_count > 0 and not could_fit(request, node)


def _nth_memory(request: Request, node: NodeCapacity) -> int:
    """Memory in MB that the job would get on each of its devices; 0 when there are too few."""
    memories = sorted((part_mb(request, d) for d in usable_devices(request, node)), reverse=True)
    return memories[request.device_count - 1] if len(memories) >= request.device_count else 0


def _largest(nodes: Sequence[NodeCapacity]) -> str:
    offers = [
        (sum(d.type == kind for d in node.devices), "CPU slots" if kind == "cpu" else kind, node.name)
        for node in nodes
        for kind in {d.type for d in node.devices}
    ]
    if not offers:
        return ""
    count, kind, name = max(offers)
    return f"; the largest that would fit is {count} {kind} on node {name}"
