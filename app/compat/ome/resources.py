"""Kubernetes' resource requests and limits → `resource_config` of a native job. Pure."""

import math
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from app.compat.quantities import amount_of
from app.domain.errors import BadSpec
from app.domain.scheduling.resources import MIG_PROFILE

GPUS = ("nvidia.com/gpu", "amd.com/gpu")
FIELD = "spec.trainer.resourcesPerNode"
_MIG = "nvidia.com/mig-"
_AMOUNTS = {"cpu": ("cpu_cores", 1), "memory": ("ram_min_mb", 2**20), "ephemeral-storage": ("storage_min_mb", 2**20)}


def resources_of(trainer: Mapping[str, Any], per_node: str, *, has_ranks: bool) -> dict[str, Any]:
    """Resources per node; CPU slots where no GPUs are requested. Raises BadSpec.

    ``has_ranks``: whether a command sets its number of ranks. A built-in trainer has one rank per device, so without
    GPUs it gets that many CPU slots.
    """
    wanted = trainer.get("resourcesPerNode") or {}
    quantities = {**(wanted.get("limits") or {}), **(wanted.get("requests") or {})}
    amounts = {name: _amount(name, text) for name, text in quantities.items()}
    found = _devices_of(amounts)
    if "gpu_count" not in found:
        found = {"gpu_count": 1, "device_type": "cpu"}
        if not has_ranks and per_node.isdecimal():
            found["gpu_count"] = int(per_node)
        elif not has_ranks and per_node == "cpu":
            found["gpu_count"] = max(1, math.ceil(amounts.get("cpu", 1)))
    for name, (native, unit) in _AMOUNTS.items():
        if amount := math.ceil(amounts.get(name, Decimal(0)) / unit):
            found[native] = amount
    if limits := _limits_of(wanted.get("limits") or {}):
        found["limits"] = limits
    return found


def _limits_of(given: Mapping[str, str]) -> dict[str, Any]:
    """The section ``limits`` of a native document; held where nodes can."""
    cores, memory = (_amount(name, given.get(name, "0")) for name in ("cpu", "memory"))
    found: dict[str, Any] = {"cpu_cores": float(cores)} if cores else {}
    if memory:
        found["ram_mb"] = math.ceil(memory / 2**20)
    return {**found, "required": False} if found else {}


def _devices_of(amounts: Mapping[str, Decimal]) -> dict[str, Any]:
    """Raises BadSpec for a resource that no node has, and for devices of two kinds."""
    devices: dict[str, dict[str, Any]] = {}
    for name in (name for name, amount in amounts.items() if amount and name not in _AMOUNTS):
        profile = name.removeprefix(_MIG).replace(".me", "+me")
        if amounts[name] % 1 and (name in GPUS or name.startswith(_MIG)):
            raise BadSpec(f"{name[:64]}: devices are allocated whole: request 1, 2 or more", field=FIELD)
        if name in GPUS:
            devices[name] = {"gpu_count": int(amounts[name])}
        elif name.startswith(_MIG) and MIG_PROFILE.fullmatch(profile):
            devices[name] = {"gpu_count": int(amounts[name]), "mig_profile": profile}
        else:
            known = ", ".join([*GPUS, f"{_MIG}PROFILE", *_AMOUNTS])
            raise BadSpec(f"{name[:64]}: no node has such a resource; known: {known}", field=FIELD)
    if len(devices) > 1:
        raise BadSpec(f"{' and '.join(sorted(devices))}: a job has devices of one kind; request only one", field=FIELD)
    return next(iter(devices.values()), {})


def _amount(name: str, quantity: str) -> Decimal:
    try:
        return amount_of(quantity)
    except ValueError as error:
        raise BadSpec(f"{name[:64]}: {error}", field=FIELD) from error
