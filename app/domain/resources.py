"""What a job needs of a node and what a node has; quantities in MB and whole devices."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

_NOISE = re.compile(r"|nvidia|amd|intel|tesla|geforce|instinct|sxm\d*|pcie|nvl|hbm\w*")


@dataclass(frozen=True, kw_only=True)
class Device:
    """One schedulable unit of a node: a GPU, a MIG slice, a simulated device, or a CPU slot (type ``cpu``)."""

    index: int
    type: str
    memory_mb: int = 0
    simulated: bool = False

    @property
    def is_cpu(self) -> bool:
        return self.type == "cpu"


@dataclass(frozen=True, kw_only=True)
class Quantities:
    """What is shared in amounts, not in whole devices."""

    cpu_cores: int = 0
    ram_mb: int = 0
    storage_mb: int = 0

    def __add__(self, other: "Quantities") -> "Quantities":
        return Quantities(
            cpu_cores=self.cpu_cores + other.cpu_cores,
            ram_mb=self.ram_mb + other.ram_mb,
            storage_mb=self.storage_mb + other.storage_mb,
        )

    def fits(self, other: "Quantities") -> bool:
        """Whether all of it is within the other."""
        return self.cpu_cores <= other.cpu_cores and self.ram_mb <= other.ram_mb and self.storage_mb <= other.storage_mb


NOTHING = Quantities()


@dataclass(frozen=True, kw_only=True)
class Request:
    """The resources of one job on one node."""

    device_count: int = 1
    device_kind: str = "cpu"  # cuda | cpu; `auto` is settled by request_of
    gpu_type: str = ""  # normalised; empty: any
    gpu_memory_min_mb: int = 0
    cpu_cores: int = 0
    ram_min_mb: int = 0
    storage_min_mb: int = 0
    required_capabilities: frozenset[str] = frozenset()

    @property
    def quantities(self) -> Quantities:
        return Quantities(cpu_cores=self.cpu_cores, ram_mb=self.ram_min_mb, storage_mb=self.storage_min_mb)


@dataclass(frozen=True, kw_only=True)
class NodeCapacity:
    """A node as the planner sees it: everything it has, and which of its devices are free."""

    name: str
    devices: tuple[Device, ...]
    free: frozenset[int]  # device indices
    cpu_cores: int = 0
    ram_mb: int = 0
    storage_mb: int = 0
    held: Quantities = NOTHING  # by jobs that asked for amounts; the rest is free
    capabilities: frozenset[str] = frozenset()

    @property
    def total(self) -> Quantities:
        return Quantities(cpu_cores=self.cpu_cores, ram_mb=self.ram_mb, storage_mb=self.storage_mb)


def normalise_gpu_type(raw: str) -> tuple[str, int]:
    """(type, memory in MB or 0) of a GPU's name: ``NVIDIA A100-SXM4-80GB`` and ``A100-80GB`` → (``a100``, 81920).

    Vendor and form factor are left out: users ask for a chip and a memory size, drivers report much more.
    """
    memory_mb, kept = 0, []
    for word in re.split(r"[\s_-]+", raw.strip().lower()):
        if match := re.fullmatch(r"(\d+)gb", word):
            memory_mb = int(match[1]) * 1024
        elif not _NOISE.fullmatch(word):
            kept.append(word)
    return "-".join(kept), memory_mb


def request_of(spec: Mapping[str, Any], *, has_gpus: bool) -> Request:
    """The resources that a job document asks for; ``auto`` becomes CUDA where any node has such a device, else CPU."""
    resources, scheduling = spec["resource_config"], spec.get("scheduling_config") or {}
    gpu_type, named_memory_mb = normalise_gpu_type(resources.get("gpu_type") or "")
    kind = resources.get("device_type") or "auto"
    if kind == "auto":
        kind = "cuda" if has_gpus or gpu_type else "cpu"
    return Request(
        device_count=resources["gpu_count"],
        device_kind=kind,
        gpu_type=gpu_type,
        gpu_memory_min_mb=max(resources.get("gpu_memory_min_mb") or 0, named_memory_mb),
        cpu_cores=resources.get("cpu_cores") or 0,
        ram_min_mb=resources.get("ram_min_mb") or 0,
        storage_min_mb=resources.get("storage_min_mb") or 0,
        required_capabilities=frozenset(scheduling.get("required_capabilities") or ()),
    )
