"""Flavors: how many devices of one type a node gives, as the inventory has them. Pure.

`trainyard.cpu.2` are two CPU slots, `trainyard.nvidia-a100.8` are eight GPUs of that type. Those of ModelArts'
dedicated pools, `modelarts.pool.visual.2xlarge`, name a number of GPUs of whatever type.
"""

import re
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from app.domain.errors import BadSpec
from app.domain.resources import NodeCapacity

_POOLS = {"xlarge": 1, "2xlarge": 2, "4xlarge": 4, "8xlarge": 8, "16xlarge": 16}
_OF_POOLS = re.compile(r"modelarts\.pool\.visual\.(\w+)")
_DOUBLINGS = 16


class Flavor(NamedTuple):
    """``cores`` and ``ram_mb`` are what the largest node with such devices has."""

    device_type: str
    devices: int
    memory_mb: int
    nodes: int
    cores: int
    ram_mb: int

    @property
    def is_cpu(self) -> bool:
        return self.device_type == "cpu"

    @property
    def id(self) -> str:
        return f"trainyard.{_slug(self.device_type)}.{self.devices}"


def flavors_of(capacities: Sequence[NodeCapacity]) -> list[Flavor]:
    """One, two, four … devices of each type, and as many as any node has."""
    return sorted(_flavors(capacities), key=lambda each: (not each.is_cpu, each.device_type, each.devices))


def flavor(flavor_id: str | None, capacities: Sequence[NodeCapacity]) -> dict[str, Any]:
    """The resource_config of one; of none a single CPU slot. Raises BadSpec."""
    if not flavor_id:
        return {"gpu_count": 1, "device_type": "cpu"}
    found = next((each for each in flavors_of(capacities) if each.id == flavor_id), None)
    if found is not None:
        kind = {"device_type": "cpu"} if found.is_cpu else {"gpu_type": found.device_type}
        return {"gpu_count": found.devices, **kind}
    pool = _OF_POOLS.fullmatch(flavor_id)
    if pool is not None and pool[1] in _POOLS:
        return {"gpu_count": _POOLS[pool[1]], "device_type": "cuda"}
    known = ", ".join(each.id for each in flavors_of(capacities)) or "none: no node is registered"
    raise BadSpec(f"is no flavor of this cluster; there are {known}", field="spec.resource.flavor_id")


def told(found: Flavor) -> dict[str, Any]:
    """A row of the list of flavors."""
    return {"flavor_id": found.id, "flavor_name": found.id, **detail(found, disk_size=0), "attributes": {}}


def detail(found: Flavor, *, disk_size: int | str) -> dict[str, Any]:
    """Of the list, where a disk's size is a number, and of jobs, where it is a text."""
    info: dict[str, Any] = {
        "max_num": found.nodes,
        "cpu": {"arch": "x86", "core_num": found.cores},
        "memory": {"size": found.ram_mb // 1024, "unit": "GB"},
        "disk": {"size": disk_size, "unit": "GB"},
    }
    if not found.is_cpu:
        info["gpu"] = {
            "unit_num": found.devices, "product_name": found.device_type, "memory": f"{found.memory_mb // 1024}GB",
        }  # fmt: skip
    return {
        "flavor_type": "CPU" if found.is_cpu else "GPU",
        "billing": {"code": found.id, "unit_num": found.devices},
        "flavor_info": info,
    }


def of_resources(resources: dict[str, Any], capacities: Sequence[NodeCapacity]) -> Flavor | None:
    """That of a job, whoever submitted it; None where no node has such devices any more."""
    wanted, count = resources.get("gpu_type"), resources["gpu_count"]
    types = [wanted] if isinstance(wanted, str) else wanted
    on_cpu = resources.get("device_type") == "cpu"
    return next(
        (
            each._replace(devices=count)
            for each in flavors_of(capacities)
            if each.devices >= count and (each.device_type in types if types else each.is_cpu == on_cpu)
        ),
        None,
    )


def _flavors(capacities: Sequence[NodeCapacity]) -> Iterator[Flavor]:
    for kind in sorted({device.type for node in capacities for device in node.devices}):
        holders = [
            (sum(device.type == kind for device in node.devices), node)
            for node in capacities
            if any(device.type == kind for device in node.devices)
        ]
        most = max(count for count, _ in holders)
        for count in sorted({*(2**power for power in range(_DOUBLINGS) if 2**power < most), most}):
            fitting = [node for has, node in holders if has >= count]
            yield Flavor(
                device_type=kind, devices=count, nodes=len(fitting),
                memory_mb=max(device.memory_mb for node in fitting for device in node.devices if device.type == kind),
                cores=max(node.cpu_cores for node in fitting), ram_mb=max(node.ram_mb for node in fitting),
            )  # fmt: skip


def _slug(device_type: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", device_type.lower()).strip("-")
