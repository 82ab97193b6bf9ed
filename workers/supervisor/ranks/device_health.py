"""GPU memory faults during an attempt, by NVML: errors that ECC could not correct, and failed rows."""

import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from app.domain.scheduling.resources import gpu_of
from workers.node.nvml import UsageNvml

_Reading = TypeVar("_Reading")


@dataclass(frozen=True)
class DeviceHealth:
    """None where the GPU does not report it: many have no ECC, and older ones retire pages instead of remapping."""

    uncorrected: int | None  # errors since the driver was loaded
    is_repair_pending: bool | None  # memory is remapped at the next reset of the GPU, and used until then


def health_of(nvml: UsageNvml, handle: object) -> DeviceHealth:
    """Read the current values."""
    uncorrected = _reading(
        nvml,
        lambda: int(
            nvml.nvmlDeviceGetTotalEccErrors(handle, nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, nvml.NVML_VOLATILE_ECC)
        ),
    )
    remapped = _reading(nvml, lambda: bool(nvml.nvmlDeviceGetRemappedRows(handle)[2]))
    retired = _reading(nvml, lambda: nvml.nvmlDeviceGetRetiredPagesPendingStatus(handle) == nvml.NVML_FEATURE_ENABLED)
    known = [each for each in (remapped, retired) if each is not None]
    return DeviceHealth(uncorrected, any(known) if known else None)


def broken_between(index: int, before: DeviceHealth, after: DeviceHealth) -> str:
    """A description of what got worse; "" when nothing did."""
    findings = []
    if before.uncorrected is not None and after.uncorrected is not None and after.uncorrected > before.uncorrected:
        count = after.uncorrected - before.uncorrected
        findings.append(f"{count} memory error{'s' if count > 1 else ''} that ECC could not correct")
    if before.is_repair_pending is False and after.is_repair_pending:
        findings.append("memory that will be given up at its next reset")
    return f"GPU {gpu_of(index)} has {' and '.join(findings)} since the attempt began" if findings else ""


def _reading(nvml: UsageNvml, ask: Callable[[], _Reading]) -> _Reading | None:
    with contextlib.suppress(nvml.NVMLError):
        return ask()
    return None
