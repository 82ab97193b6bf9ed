"""Whether any node could ever hold a job, and when not, which of its wishes is too large and what would fit."""

from collections.abc import Callable, Sequence
from dataclasses import replace

from app.domain.errors import CannotFit
from app.domain.placement import could_fit, describe, usable_devices
from app.domain.resources import NodeCapacity, Request

# (field, what the node has of it, the request asking for exactly that)
_QUANTITIES: tuple[tuple[str, Callable[[Request, NodeCapacity], int], Callable[[Request, int], Request]], ...] = (
    ("gpu_count", lambda r, n: len(usable_devices(r, n)), lambda r, v: replace(r, device_count=v)),
    (
        "gpu_memory_min_mb",
        lambda r, n: _nth_memory(replace(r, gpu_memory_min_mb=0), n),
        lambda r, v: replace(r, gpu_memory_min_mb=v),
    ),
    ("cpu_cores", lambda _, n: n.cpu_cores, lambda r, v: replace(r, cpu_cores=v)),
    ("ram_min_mb", lambda _, n: n.ram_mb, lambda r, v: replace(r, ram_min_mb=v)),
    ("storage_min_mb", lambda _, n: n.storage_mb, lambda r, v: replace(r, storage_min_mb=v)),
)


def refuse_unfitting(request: Request, nodes: Sequence[NodeCapacity]) -> None:
    """Raise CannotFit, naming the largest that would fit, when no registered node could hold the job even empty.

    Without any node nothing is known, and nothing is refused.
    """
    if not nodes or any(not could_fit(request, node) for node in nodes):
        return
    _refuse_unknown_type(request, nodes)
    _refuse_missing_capabilities(request, nodes)
    for field, has, asking in _QUANTITIES:
        fitting = [(has(request, n), n.name) for n in nodes if _fits_with(asking(request, has(request, n)), n)]
        if fitting:
            value, name = max(fitting)
            raise CannotFit(
                f"no node could ever hold this job; the largest {field} that would fit is {value}, on node {name}",
                field=f"resource_config.{field}",
            )
    why = "; ".join(f"{node.name} {could_fit(request, node)}" for node in nodes[:3])
    raise CannotFit(f"needs {describe(request)} on one node; no node could ever give that: {why}{_largest(nodes)}",
                    field="resource_config")  # fmt: skip


def _refuse_unknown_type(request: Request, nodes: Sequence[NodeCapacity]) -> None:
    known = sorted({d.type for n in nodes for d in n.devices if not d.is_cpu})
    if request.gpu_type and request.gpu_type not in known:
        way_out = f"known: {', '.join(known)}" if known else "no GPU is registered: ask for device_type cpu"
        raise CannotFit(
            f"no node ever had a GPU of type {request.gpu_type!r}; {way_out}{_largest(nodes)}",
            field="resource_config.gpu_type",
        )
    if request.device_kind == "cuda" and not known:
        raise CannotFit(
            f"no GPU is registered; ask for device_type cpu or auto{_largest(nodes)}",
            field="resource_config.device_type",
        )


def _refuse_missing_capabilities(request: Request, nodes: Sequence[NodeCapacity]) -> None:
    bare = replace(request, required_capabilities=frozenset())
    offers = sorted({c for n in nodes if not could_fit(bare, n) for c in n.capabilities})
    if any(not could_fit(bare, n) for n in nodes):
        raise CannotFit(
            f"no node that could hold this job has {', '.join(sorted(request.required_capabilities))}; "
            f"offered: {', '.join(offers) or 'none'}",
            field="scheduling_config.required_capabilities",
        )


def _fits_with(request: Request, node: NodeCapacity) -> bool:
    return request.device_count > 0 and not could_fit(request, node)


def _nth_memory(request: Request, node: NodeCapacity) -> int:
    """The memory that as many devices as asked for have at least; 0 when there are too few."""
    memories = sorted((d.memory_mb for d in usable_devices(request, node)), reverse=True)
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
