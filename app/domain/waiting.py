"""How long jobs that wait will wait, as far as it can be known. Pure; the numbers come from the running jobs."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from app.domain.placement import choose_devices, could_fit
from app.domain.resources import NodeCapacity, Quantities, Request


@dataclass(frozen=True, kw_only=True)
class Ending:
    """A running job gives back devices of a node in so many seconds, as it says itself."""

    seconds: float
    node: str
    devices: frozenset[int]
    quantities: Quantities


def starts(line: Sequence[Request], nodes: Sequence[NodeCapacity], endings: Iterable[Ending]) -> list[float | None]:
    """In how many seconds each of the line, which is in the order of service, can start; None when nobody knows.

    Whoever starts is taken to keep its devices: how long it will run is not known before it does. So nothing is
    promised that hangs on it, and a job that could only start after such a one gets None.
    """
    found: list[float | None] = [None] * len(line)
    now = {node.name: node for node in sorted(nodes, key=lambda n: n.name)}
    for node in list(now.values()):
        now[node.name] = _fill(line, found, node, 0.0)
    for ending in sorted(endings, key=lambda e: e.seconds):
        if ending.node in now:
            node = _given_back(now[ending.node], ending)
            now[ending.node] = _fill(line, found, node, max(0.0, ending.seconds))
    return found


def _fill(line: Sequence[Request], found: list[float | None], node: NodeCapacity, seconds: float) -> NodeCapacity:
    """Let those start that fit on the node, first come first served; returns the node as it is then."""
    for place, request in enumerate(line):
        if not node.free:
            break
        if found[place] is not None or could_fit(request, node):
            continue
        devices = choose_devices(request, node)
        if devices is not None:
            found[place] = seconds
            node = replace(node, free=node.free - {d.index for d in devices}, held=node.held + request.quantities)
    return node


def _given_back(node: NodeCapacity, ending: Ending) -> NodeCapacity:
    held, back = node.held, ending.quantities
    left = Quantities(
        cpu_cores=held.cpu_cores - back.cpu_cores,
        ram_mb=held.ram_mb - back.ram_mb,
        storage_mb=held.storage_mb - back.storage_mb,
    )
    return replace(node, free=node.free | ending.devices, held=left)
