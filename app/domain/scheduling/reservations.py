"""Reservations: devices held for waiting jobs, and backfill by jobs that end in time. Pure."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from app.domain.scheduling.filters import choose_devices
from app.domain.scheduling.node_classes import NodeClasses
from app.domain.scheduling.preemption import Room
from app.domain.scheduling.queue_order import QueuedJob
from app.domain.scheduling.resources import Device, NodeCapacity, Request

_Gap = tuple[float, str, tuple[Device, ...]]  # (seconds, node, devices)


@dataclass(frozen=True)
class _Reservation:
    """Reserved free devices of a node; other jobs may use them for at most ``seconds``, None means not at all."""

    devices: frozenset[int]
    seconds: float | None


class Reservations:
    """``nodes`` is a live mapping without the reserved devices; within a pass nodes only become fuller."""

    def __init__(self, nodes: Mapping[str, NodeCapacity], classes: NodeClasses) -> None:
        self._nodes = nodes
        self._classes = classes
        self._reserved: dict[str, _Reservation] = {}
        self._gaps: dict[Request, Sequence[_Gap]] = {}
        self._without_gap: set[Request] = set()  # valid until the next reservation
        self._with_reserved: list[tuple[float, NodeCapacity]] = []  # nodes with their reserved devices free

    def reserve(self, room: Room) -> NodeCapacity:
        """Reserve the devices of the room that are free now; returns the node without them."""
        node, wanted = self._nodes[room.node], frozenset(device.index for device in room.devices)
        parts = {index: part for index, part in node.parts.items() if index not in wanted}
        before = self._reserved.get(room.node, _Reservation(frozenset(), room.seconds))
        seconds = None if before.seconds is None or room.seconds is None else min(before.seconds, room.seconds)
        self._reserved[room.node] = _Reservation(before.devices | (wanted & node.free), seconds)
        self._gaps.clear()
        self._without_gap.clear()
        reserved, held = node.reserved | (wanted & node.free), node.held + room.amounts
        return replace(node, free=node.free - wanted, parts=parts, reserved=reserved, held=held)

    def refresh(self, name: str) -> None:
        """Note that the node has changed."""
        if name in self._reserved:
            self._gaps.clear()

    def take(self, job: QueuedJob, avoided: Collection[str]) -> tuple[str, tuple[Device, ...]] | None:
        """Backfill: take reserved devices that the job releases before the owner can start; None if there are none."""
        request = job.request
        if job.max_seconds is None or request in self._without_gap:
            return None
        if request not in self._gaps:
            self._gaps[request] = self._gaps_for(request)
            if not self._gaps[request]:
                self._without_gap.add(request)
        for seconds, name, devices in self._gaps[request]:
            if job.max_seconds <= seconds and name not in avoided:
                reserved, taken = self._reserved[name], frozenset(device.index for device in devices)
                self._reserved[name] = replace(reserved, devices=reserved.devices - taken)
                self._gaps.clear()
                return name, devices
        return None

    def _gaps_for(self, request: Request) -> Sequence[_Gap]:
        if not self._gaps:
            self._with_reserved = [
                (reserved.seconds, replace(self._nodes[name], free=self._nodes[name].free | reserved.devices))
                for name, reserved in sorted(self._reserved.items())
                if reserved.seconds is not None
            ]
        could_hold, found = self._classes.could_hold(request), []
        for seconds, node in self._with_reserved:
            if len(node.free) + len(node.parts) >= request.device_count and could_hold(node.name):
                devices = choose_devices(request, node)
                if devices is not None:
                    found.append((seconds, node.name, devices))
        return found
