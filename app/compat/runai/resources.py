"""The devices, cores and memory of a Run:ai pod → those of a native document. Pure."""

import math
from collections.abc import Mapping
from typing import Any

from app.compat.quantities import amount_of
from app.domain.errors import BadSpec
from app.schemas.spec.field_verdicts import warning

# gpuRequestType → field with the requested part of a device.
PARTS = {"portion": "gpuPortionRequest", "memory": "gpuMemoryRequest", "migProfile": "migProfile"}
SHARES = ("gpu_fraction", "gpu_memory_request_mb", "mig_profile")  # native fields for a part of a device


def megabytes(quantity: str, part: str = "spec") -> int:
    """Rounded up to whole MiB. Raises BadSpec."""
    try:
        return math.ceil(amount_of(quantity) / 2**20)
    except ValueError as error:
        raise BadSpec(str(error), field=f"{part}.compute") from error


def resources_of(compute: Mapping[str, Any], warnings: list[str], part: str = "spec") -> dict[str, Any]:
    """``resource_config`` of the native document, for a pod. Raises BadSpec."""
    devices, kind = compute.get("gpuDevicesRequest"), compute.get("gpuRequestType")
    found: dict[str, Any] = {"gpu_count": max(1, devices or 0)}
    if not devices:
        found["device_type"] = "cpu"
    share = _share(kind, compute, part) if devices else {}
    if share and devices and devices > 1:
        raise BadSpec("a part of a device needs gpuDevicesRequest 1", field=f"{part}.compute.gpuRequestType")
    for of_kind, field in PARTS.items():
        if compute.get(field) and not devices:
            warnings.append(warning(f"{part}.compute.{field}", "has no effect without gpuDevicesRequest"))
        elif compute.get(field) and kind != of_kind:
            warnings.append(warning(f"{part}.compute.{field}", f"has no effect unless gpuRequestType is {of_kind}"))
    if cores := compute.get("cpuCoreRequest"):
        found["cpu_cores"] = math.ceil(cores)
        if cores != found["cpu_cores"]:
            warnings.append(warning(f"{part}.compute.cpuCoreRequest", f"{cores:g} is rounded up to whole cores"))
    if compute.get("cpuMemoryRequest"):
        found["ram_min_mb"] = megabytes(compute["cpuMemoryRequest"], part)
    if limits := limits_of(compute.get("cpuCoreLimit"), compute.get("cpuMemoryLimit"), part):
        found["limits"] = limits
    return found | share


def limits_of(cores: float | None, memory: str | None, part: str) -> dict[str, Any]:
    """The section ``limits`` of a native document. Raises BadSpec."""
    found: dict[str, Any] = {"cpu_cores": cores} if cores else {}
    if memory:
        found["ram_mb"] = megabytes(memory, part)
    return {**found, "required": False} if found else {}


def _share(kind: str | None, compute: Mapping[str, Any], part: str) -> dict[str, Any]:
    if kind == "portion" and (portion := compute.get("gpuPortionRequest", 1)) < 1:
        return {"gpu_fraction": portion}
    if kind == "memory" and compute.get("gpuMemoryRequest"):
        return {"gpu_memory_request_mb": megabytes(compute["gpuMemoryRequest"], part)}
    if kind == "migProfile" and compute.get("migProfile"):
        return {"mig_profile": compute["migProfile"]}
    return {}
