"""Whether a training fits the devices that it could get, in words, with the ways out where it does not."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from app.domain.memory.estimate import CPU, MemoryEstimate, estimate
from app.domain.memory.ways_out import WayOut, ways_out
from app.domain.scheduling.filters import could_fit, part_mb, usable_devices
from app.domain.scheduling.resources import NodeCapacity, Request
from app.domain.spec.model import JobDocument

# An estimate may be this much too high; only what even then fits no device is refused.
LOWER = 0.8
_MB = 2**20
_MOST_NAMED = 4
Verdict = Literal["fits", "may_not_fit", "does_not_fit", "unknown"]


@dataclass(frozen=True, kw_only=True)
class DeviceInReach:
    """A device that the job could get; of several it gets at least these bytes on each."""

    type: str
    bytes: int


@dataclass(frozen=True, kw_only=True)
class Fit:
    """``device`` is the largest that the job could get, ``smaller`` are the others, the smallest first.

    None where no node could hold the job yet, or none says how much memory its devices have.
    """

    estimate: MemoryEstimate
    devices: int
    device: DeviceInReach | None
    smaller: Sequence[DeviceInReach] = ()
    ways_out: Sequence[WayOut] = ()
    at: str = "resource_config"  # the field that asks for the devices

    @property
    def verdict(self) -> Verdict:
        if not self.estimate.is_known or self.device is None:
            return "unknown"
        if self.estimate.total_bytes <= self.device.bytes:
            return "fits"
        return "does_not_fit" if self.estimate.least_bytes * LOWER > self.device.bytes else "may_not_fit"

    @property
    def too_small(self) -> Sequence[DeviceInReach]:
        """Where the job may be placed although it needs more, while it would fit elsewhere."""
        if self.verdict != "fits":
            return ()
        return [each for each in self.smaller if each.bytes < self.estimate.total_bytes]

    @property
    def message(self) -> str:
        """``needs about 61 GB on each of 2 devices; a100-40gb has 40: batch_size 1 needs 33, QLORA 18``."""
        if not self.estimate.is_known:
            return f"its memory is not estimated: {self.estimate.reason}"
        places = "the device" if self.devices == 1 else f"each of {self.devices} devices"
        needs = f"needs about {_gb(self.estimate.total_bytes)} GB on {places}"
        if self.device is None:
            return needs
        if self.verdict == "fits":
            fitting = [each for each in self.smaller if each not in self.too_small]
            return f"{needs}; {_listed([*fitting[: _MOST_NAMED - 1], self.device])}{self._except_for()}"
        return f"{needs}; {_listed([self.device])}: {self._ways_out()}"

    def _except_for(self) -> str:
        if not self.too_small:
            return ""
        least_mb = -(-self.estimate.total_bytes // _MB)
        return (
            f", but it may be placed where {_listed(self.too_small[:_MOST_NAMED])}: {self.at}.gpu_memory_min_mb "
            f"{least_mb} prevents that"
        )

    def _ways_out(self) -> str:
        if not self.ways_out:
            return "take devices with more memory, or a smaller model"
        first, *others = self.ways_out[:_MOST_NAMED]
        parts = [f"{first.change} needs {_gb(first.bytes)}", *(f"{each.change} {_gb(each.bytes)}" for each in others)]
        return ", ".join(parts)


def fit_of(document: JobDocument, config: Mapping[str, Any], request: Request, nodes: Iterable[NodeCapacity]) -> Fit:
    """The fit of a document whose model has this configuration; ways out only where it does not fit."""
    count = request.node_count * request.device_count
    found = estimate(document, config, device_count=count, device_kind=request.device_kind)
    reach = [] if request.device_kind == CPU else devices_within_reach(request, nodes)
    device = reach[-1] if reach else None
    fit = Fit(estimate=found, devices=count, device=device, smaller=reach[:-1])
    if device is None or fit.verdict in ("fits", "unknown"):
        return fit
    changes = ways_out(document, config, device_count=count, device_kind=request.device_kind, available=device.bytes)
    return replace(fit, ways_out=changes)


def devices_within_reach(request: Request, nodes: Iterable[NodeCapacity]) -> list[DeviceInReach]:
    """What the job could get, each once, the smallest first; empty too where the memory of a device is unknown."""
    found: set[DeviceInReach] = set()
    for node in nodes:
        if could_fit(request, node):
            continue
        devices = sorted(usable_devices(request, node), key=lambda each: each.memory_mb, reverse=True)
        if any(not each.memory_mb for each in devices):
            return []
        smallest = devices[request.device_count - 1]
        found.add(DeviceInReach(type=smallest.type, bytes=part_mb(request, smallest) * _MB))
    return sorted(found, key=lambda each: (each.bytes, each.type))


def _listed(devices: Sequence[DeviceInReach]) -> str:
    """``l4 has 24, h100 80``."""
    first, *others = devices
    return ", ".join([f"{first.type} has {_gb(first.bytes)}", *(f"{each.type} {_gb(each.bytes)}" for each in others)])


def _gb(size: int) -> str:
    value = size / 2**30
    return f"{value:.1f}".removesuffix(".0") if value < 10 else f"{value:.0f}"
