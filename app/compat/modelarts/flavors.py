"""Flavors: numbers of devices of one type per node, from the inventory. Pure.

`trainyard.cpu.2` are two CPU slots, `trainyard.nvidia-a100.8` are eight GPUs of that type. Those of ModelArts'
dedicated pools, `modelarts.pool.visual.2xlarge`, name a number of GPUs of whatever type, and `modelarts.vm.cpu.8u` a
number of CPU slots. Cores, memory and disk of a flavor are its share of a node, by devices.
"""

import re
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from app.domain.errors import BadSpec
from app.domain.scheduling.resources import NodeCapacity
from app.domain.spec.model import ResourceConfig

_POOLS = {"xlarge": 1, "2xlarge": 2, "4xlarge": 4, "8xlarge": 8, "16xlarge": 16}
_OF_POOLS = re.compile(r"modelarts\.pool\.visual\.(\w+)")
_OF_MACHINES = re.compile(r"modelarts\.vm\.cpu\.([1-9]\d{0,3})u")
_DOUBLINGS = 16
_ARCHITECTURES = {"x86_64": "x86", "amd64": "x86"}  # others have the name of the machine


class Flavor(NamedTuple):
    """``cores``, ``ram_mb`` and ``disk_mb`` are the share of its devices in the largest node that has so many."""

    device_type: str
    devices: int
    memory_mb: int
    nodes: int
    arch: str
    cores: int
    ram_mb: int
    disk_mb: int

    @property
    def is_cpu(self) -> bool:
        return self.device_type == "cpu"

    @property
    def id(self) -> str:
        return f"trainyard.{_slug(self.device_type)}.{self.devices}"


def flavors_of(capacities: Sequence[NodeCapacity]) -> list[Flavor]:
    """Powers of two of each device type, and the largest number on any node."""
    return sorted(_flavors(capacities), key=lambda each: (not each.is_cpu, each.device_type, each.devices))


def flavor(flavor_id: str | None, capacities: Sequence[NodeCapacity]) -> dict[str, Any]:
    """The resource_config of a flavor; without one a single CPU slot. Raises BadSpec."""
    if not flavor_id:
        return {"gpu_count": 1, "device_type": "cpu"}
    found = next((each for each in flavors_of(capacities) if each.id == flavor_id), None)
    if found is not None:
        kind = {"device_type": "cpu"} if found.is_cpu else {"gpu_type": found.device_type}
        return {"gpu_count": found.devices, **kind}
    pool = _OF_POOLS.fullmatch(flavor_id)
    if pool is not None and pool[1] in _POOLS:
        return {"gpu_count": _POOLS[pool[1]], "device_type": "cuda"}
    slots = _OF_MACHINES.fullmatch(flavor_id)
    if slots is not None and _flavor("cpu", int(slots[1]), capacities) is not None:
        return {"gpu_count": int(slots[1]), "device_type": "cpu"}
    known = ", ".join(each.id for each in flavors_of(capacities)) or "none: no node is registered"
    raise BadSpec(f"is not a flavor of this cluster; known: {known}", field="spec.resource.flavor_id")


def flavor_item(found: Flavor) -> dict[str, Any]:
    """An item of the list of flavors."""
    return {"flavor_id": found.id, "flavor_name": found.id, **detail(found), "attributes": {}}


def detail(found: Flavor) -> dict[str, Any]:
    arch = {"arch": _ARCHITECTURES.get(found.arch.lower(), found.arch)} if found.arch else {}
    info: dict[str, Any] = {
        "max_num": found.nodes,
        "cpu": {**arch, "core_num": found.cores},
        "memory": {"size": found.ram_mb // 1024, "unit": "GB"},
        "disk": {"size": found.disk_mb // 1024, "unit": "GB"},
    }
    if not found.is_cpu:
        info["gpu"] = {
            "unit_num": found.devices,
            "product_name": found.device_type,
            "memory": f"{found.memory_mb // 1024}GB",
        }
    return {
        "flavor_type": "CPU" if found.is_cpu else "GPU",
        "billing": {"code": found.id, "unit_num": found.devices},
        "flavor_info": info,
    }


def of_job(resources: ResourceConfig, capacities: Sequence[NodeCapacity]) -> dict[str, Any] | None:
    """The details of a job's flavor, with the disk size as a string; None where no node has such devices any more."""
    found = of_resources(resources, capacities)
    if found is None:
        return None
    details = detail(found)
    details["flavor_info"]["disk"]["size"] = str(details["flavor_info"]["disk"]["size"])
    return details


def of_resources(resources: ResourceConfig, capacities: Sequence[NodeCapacity]) -> Flavor | None:
    """The flavor of a job, also of one that another API created; None where no node has such devices."""
    wanted, count = resources.gpu_type, resources.gpu_count
    types = [wanted] if isinstance(wanted, str) else wanted
    on_cpu = resources.device_type == "cpu"
    kinds = [kind for kind in _kinds(capacities) if (kind in types if types else (kind == "cpu") == on_cpu)]
    return next((found for kind in kinds if (found := _flavor(kind, count, capacities)) is not None), None)


def _flavors(capacities: Sequence[NodeCapacity]) -> Iterator[Flavor]:
    for kind in _kinds(capacities):
        most = max(_count(node, kind) for node in capacities)
        for count in sorted({*(2**power for power in range(_DOUBLINGS) if 2**power < most), most}):
            found = _flavor(kind, count, capacities)
            if found is not None:
                yield found


def _kinds(capacities: Sequence[NodeCapacity]) -> list[str]:
    return sorted({device.type for node in capacities for device in node.devices})


def _count(node: NodeCapacity, kind: str) -> int:
    return sum(device.type == kind for device in node.devices)


def _flavor(kind: str, count: int, capacities: Sequence[NodeCapacity]) -> Flavor | None:
    fitting = [node for node in capacities if _count(node, kind) >= count]
    if not fitting:
        return None
    largest = max(fitting, key=lambda node: (node.cpu_cores / len(node.devices), node.ram_mb / len(node.devices)))
    every = len(largest.devices)
    return Flavor(
        device_type=kind,
        devices=count,
        nodes=len(fitting),
        arch=largest.arch,
        memory_mb=max(device.memory_mb for node in fitting for device in node.devices if device.type == kind),
        cores=largest.cpu_cores * count // every,
        ram_mb=largest.ram_mb * count // every,
        disk_mb=largest.storage_mb * count // every,
    )


def _slug(device_type: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", device_type.lower()).strip("-")
