"""Start estimates for pending jobs, from the expected ends of running jobs. Pure."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from app.domain.scheduling import gang_placement
from app.domain.scheduling.filters import choose_devices, could_fit, share_on
from app.domain.scheduling.gang_placement import GangPart
from app.domain.scheduling.resources import NodeCapacity, Quantities, Request
from app.domain.scheduling.roles.packing import pack
from app.domain.scheduling.scoring import DEFAULT_WEIGHTS
from app.domain.units import WHOLE

# Only the front of the line: further back an estimate is costly and little more than a guess.
LOOK_AHEAD = 20


@dataclass(frozen=True, kw_only=True)
class DeviceRelease:
    """A running job releases devices of a node in this many seconds, by its own estimate."""

    seconds: float
    node: str
    devices: frozenset[int]
    quantities: Quantities
    share: int = WHOLE  # of each device, in hundredths


def starts(
    line: Sequence[Request], nodes: Sequence[NodeCapacity], endings: Iterable[DeviceRelease]
) -> list[float | None]:
    """Seconds until each request of the line, which is in serving order, can start; None when unknown.

    A job that starts is assumed to keep its devices, since its runtime is unknown. A job that could only start after
    such a one gets None.
    """
    found: list[float | None] = [None] * len(line)
    now = {node.name: node for node in sorted(nodes, key=lambda n: n.name)}
    _serve(line, found, now, list(now), 0.0)
    for ending in sorted(endings, key=lambda e: e.seconds):
        if ending.node in now:
            now[ending.node] = now[ending.node].without(ending.devices, ending.share, ending.quantities)
            _serve(line, found, now, [ending.node], max(0.0, ending.seconds))
    return found


def _serve(
    line: Sequence[Request],
    found: list[float | None],
    now: dict[str, NodeCapacity],
    changed: Sequence[str],
    seconds: float,
) -> None:
    """Start what fits on the changed nodes, first come first served; gangs are tried in between, in order."""
    begin = 0
    for gang in [place for place, request in enumerate(line) if request.is_gang and found[place] is None]:
        for name in changed:
            now[name] = _fill(line, found, now[name], seconds, range(begin, gang))
        parts = _parts(line[gang], now.values())
        if parts is not None:
            found[gang] = seconds
            for part in parts:
                indices = (device.index for device in part.devices)
                now[part.node] = now[part.node].with_job(indices, WHOLE, part.quantities(line[gang]))
        begin = gang + 1
    for name in changed:
        now[name] = _fill(line, found, now[name], seconds, range(begin, len(line)))


def _parts(request: Request, nodes: Collection[NodeCapacity]) -> tuple[GangPart, ...] | None:
    if request.roles:
        return pack(request, nodes)
    found_on = (each for node in nodes for each in gang_placement.candidates(request, node, DEFAULT_WEIGHTS))
    return gang_placement.choose(request, found_on, DEFAULT_WEIGHTS)


def _fill(
    line: Sequence[Request], found: list[float | None], node: NodeCapacity, seconds: float, places: Iterable[int]
) -> NodeCapacity:
    """Start the requests at these positions that fit on the node; returns the node with them."""
    for place in places:
        request = line[place]
        if not node.has_room:
            break
        if found[place] is not None or request.is_gang or could_fit(request, node):
            continue
        devices = choose_devices(request, node)
        if devices is not None:
            found[place] = seconds
            share = share_on(request, devices[0])
            taken = (device.index for device in devices)
            node = node.with_job(taken, share, request.quantities, request.tenant)
    return node
