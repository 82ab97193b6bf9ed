"""Whether and where a job fits: hard filters over nodes, each a sentence a user can read."""

from collections.abc import Callable, Sequence

from app.domain.resources import Device, NodeCapacity, Request

# A100-80GB reports 81 920 MB, an H100-80GB 81 559: a named size is met within this share.
MEMORY_TOLERANCE = 0.95


def usable_devices(request: Request, node: NodeCapacity) -> list[Device]:
    """The devices of a node, free or not, that are of the asked kind, type and memory."""
    if request.device_kind == "cpu":
        return [d for d in node.devices if d.is_cpu]
    return [
        d
        for d in node.devices
        if not d.is_cpu
        and request.gpu_type in ("", d.type)
        and d.memory_mb >= request.gpu_memory_min_mb * MEMORY_TOLERANCE
    ]


def _enough_devices(request: Request, node: NodeCapacity) -> str:
    usable = len(usable_devices(request, node))
    return "" if usable >= request.device_count else f"has {usable} of {request.device_count} such devices"


def _enough_cpu(request: Request, node: NodeCapacity) -> str:
    return "" if node.cpu_cores >= request.cpu_cores else f"has {node.cpu_cores} of {request.cpu_cores} CPU cores"


def _enough_ram(request: Request, node: NodeCapacity) -> str:
    return "" if node.ram_mb >= request.ram_min_mb else f"has {node.ram_mb} of {request.ram_min_mb} MB memory"


def _enough_storage(request: Request, node: NodeCapacity) -> str:
    enough = node.storage_mb >= request.storage_min_mb
    return "" if enough else f"has {node.storage_mb} of {request.storage_min_mb} MB storage"


def _has_capabilities(request: Request, node: NodeCapacity) -> str:
    missing = sorted(request.required_capabilities - node.capabilities)
    return f"lacks the capabilities {', '.join(missing)}" if missing else ""


# Each returns "" when the node passes, else why it does not.
FILTERS: Sequence[Callable[[Request, NodeCapacity], str]] = (
    _enough_devices,
    _enough_cpu,
    _enough_ram,
    _enough_storage,
    _has_capabilities,
)


def could_fit(request: Request, node: NodeCapacity) -> str:
    """Why the node could never hold the job, even empty; "" when it could."""
    return next((reason for check in FILTERS if (reason := check(request, node))), "")


def choose_devices(request: Request, node: NodeCapacity) -> tuple[Device, ...] | None:
    """The free devices of the node that the job would get, lowest index first; None when too little is free."""
    if not (node.held + request.quantities).fits(node.total):
        return None
    free = [d for d in usable_devices(request, node) if d.index in node.free]
    return tuple(free[: request.device_count]) if len(free) >= request.device_count else None


def describe(request: Request) -> str:
    """The devices asked for, in words: ``2 a100``, ``1 CPU slot``."""
    kind = request.gpu_type or {"cpu": "CPU slot", "cuda": "GPU"}[request.device_kind]
    plural = "s" if request.device_count != 1 and not request.gpu_type else ""
    return f"{request.device_count} {kind}{plural}"


def explain(request: Request, nodes: Sequence[NodeCapacity]) -> str:
    """Why a job does not start now, with counts, type and what is free."""
    if not nodes:
        return f"needs {describe(request)}; no node is ready"
    fitting = [n for n in nodes if not could_fit(request, n)]
    if not fitting:
        why = "; ".join(f"{n.name} {could_fit(request, n)}" for n in nodes[:3])
        return f"needs {describe(request)} on one node; no ready node has that: {why}"
    free = {n.name: sum(d.index in n.free for d in usable_devices(request, n)) for n in fitting}
    listed = ", ".join(f"{count} on {name}" for name, count in list(free.items())[:3])
    amounts = _explain_amounts(request, fitting) if max(free.values()) >= request.device_count else ""
    return f"needs {describe(request)} on one node; free: {listed}{amounts}"


def _explain_amounts(request: Request, nodes: Sequence[NodeCapacity]) -> str:
    """What a job waits for that has devices enough."""
    n = nodes[0]
    asked = ((request.cpu_cores, n.cpu_cores - n.held.cpu_cores, "CPU cores"),
             (request.ram_min_mb, n.ram_mb - n.held.ram_mb, "MB memory"),
             (request.storage_min_mb, n.storage_mb - n.held.storage_mb, "MB storage"))  # fmt: skip
    short = [f"{free} of {wanted} {unit}" for wanted, free, unit in asked if wanted > free]
    return f"; {n.name} has free: {', '.join(short)}" if short else ""
