"""Devices that are kept for jobs which wait, and who may use them meanwhile. Pure."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from app.domain.scheduling.filters import choose_devices
from app.domain.scheduling.node_classes import NodeClasses
from app.domain.scheduling.preemption import Room
from app.domain.scheduling.queue_order import QueuedJob
from app.domain.scheduling.resources import Device, NodeCapacity, Request

_Gap = tuple[float, str, tuple[Device, ...]]  # for how long, on which node, which devices


@dataclass(frozen=True)
class _Kept:
    """Free devices of a node; others may use them for ``seconds`` at most, None: not at all."""

    devices: frozenset[int]
    seconds: float | None


class KeptDevices:
    """``nodes`` are as they are when something is looked for, without what is kept; they only become fuller."""

    def __init__(self, nodes: Mapping[str, NodeCapacity], classes: NodeClasses) -> None:
        self._nodes = nodes
        self._classes = classes
        self._kept: dict[str, _Kept] = {}
        self._gaps: dict[Request, Sequence[_Gap]] = {}
        self._without_gap: set[Request] = set()  # for good, as long as nothing more is kept
        self._with_kept: list[tuple[float, NodeCapacity]] = []  # with as much free as before

    def keep(self, room: Room) -> NodeCapacity:
        """The node without what is free of these devices now: nobody gets it who does not give it back in time."""
        node, wanted = self._nodes[room.node], frozenset(device.index for device in room.devices)
        parts = {index: part for index, part in node.parts.items() if index not in wanted}
        before = self._kept.get(room.node, _Kept(frozenset(), room.seconds))
        seconds = None if before.seconds is None or room.seconds is None else min(before.seconds, room.seconds)
        self._kept[room.node] = _Kept(before.devices | (wanted & node.free), seconds)
        self._gaps.clear()
        self._without_gap.clear()
        kept, held = node.kept | (wanted & node.free), node.held + room.amounts
        return replace(node, free=node.free - wanted, parts=parts, kept=kept, held=held)

    def look_again_at(self, name: str) -> None:
        """The node has changed."""
        if name in self._kept:
            self._gaps.clear()

    def take(self, job: QueuedJob, avoided: Collection[str]) -> tuple[str, tuple[Device, ...]] | None:
        """The node and the devices that it gives back before they can be used by whom they are kept for."""
        request = job.request
        if job.at_most_seconds is None or request in self._without_gap:
            return None
        if request not in self._gaps:
            self._gaps[request] = self._gaps_for(request)
            if not self._gaps[request]:
                self._without_gap.add(request)
        for seconds, name, devices in self._gaps[request]:
            if job.at_most_seconds <= seconds and name not in avoided:
                kept, taken = self._kept[name], frozenset(device.index for device in devices)
                self._kept[name] = replace(kept, devices=kept.devices - taken)
                self._gaps.clear()
                return name, devices
        return None

    def _gaps_for(self, request: Request) -> Sequence[_Gap]:
        if not self._gaps:
            self._with_kept = [
                (kept.seconds, replace(self._nodes[name], free=self._nodes[name].free | kept.devices))
                for name, kept in sorted(self._kept.items())
                if kept.seconds is not None
            ]
        could_hold, found = self._classes.could_hold(request), []
        for seconds, node in self._with_kept:
            if len(node.free) + len(node.parts) >= request.device_count and could_hold(node.name):
                devices = choose_devices(request, node)
                if devices is not None:
                    found.append((seconds, node.name, devices))
        return found
