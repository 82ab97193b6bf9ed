"""What this machine has, by NVML and /proc, without importing torch."""

import os
import shutil
from dataclasses import dataclass
from pathlib import Path

from app.domain.resources import Device, normalise_gpu_type
from workers.node_config import NodeConfig

try:
    import pynvml
except ImportError:  # the `gpu` extra is not installed: no GPU can be offered
    pynvml = None

MEBIBYTE = 1 << 20


@dataclass(frozen=True, kw_only=True)
class Inventory:
    devices: tuple[Device, ...]
    cpu_cores: int
    ram_mb: int
    storage_mb: int


def take_inventory(config: NodeConfig, data_dir: Path) -> Inventory:
    """Declared devices if there are any, else the GPUs found, else CPU slots; and the machine around them."""
    devices = _declared(config) or find_gpus() or cpu_slots()
    return Inventory(devices=devices, cpu_cores=usable_cores(), ram_mb=_ram_mb(), storage_mb=_storage_mb(data_dir))


def find_gpus() -> tuple[Device, ...]:
    """The NVIDIA GPUs that this process may use, by NVML index; none without driver or library."""
    if pynvml is None:
        return ()
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return ()
    try:
        count = pynvml.nvmlDeviceGetCount()
        return tuple(_gpu(index) for index in range(count) if _is_ours(index))
    finally:
        pynvml.nvmlShutdown()


def cpu_slots() -> tuple[Device, ...]:
    """At least two, so that a job of two ranks runs on any laptop."""
    return tuple(Device(index=index, type="cpu") for index in range(max(2, usable_cores())))


def usable_cores() -> int:
    """Cores this process may run on: fewer than the machine has where it was confined to some."""
    return len(os.sched_getaffinity(0))


def _declared(config: NodeConfig) -> tuple[Device, ...]:
    wanted = [(kind, declared.memory_mb) for declared in config.devices for kind in [declared.type] * declared.count]
    devices = []
    for index, (raw, declared_mb) in enumerate(wanted):
        kind, memory_mb = normalise_gpu_type(raw)
        devices.append(Device(index=index, type=kind, memory_mb=declared_mb or memory_mb, simulated=True))
    return tuple(devices)


def _gpu(index: int) -> Device:
    handle = pynvml.nvmlDeviceGetHandleByIndex(index)
    kind, _ = normalise_gpu_type(str(pynvml.nvmlDeviceGetName(handle)))
    memory_mb = int(pynvml.nvmlDeviceGetMemoryInfo(handle).total) // MEBIBYTE
    return Device(index=index, type=kind, memory_mb=memory_mb)


def _is_ours(index: int) -> bool:
    """Whether CUDA_VISIBLE_DEVICES, where it lists numbers, leaves this GPU to us."""
    listed = os.environ.get("CUDA_VISIBLE_DEVICES")
    if listed is None or not all(part.strip().isdigit() for part in listed.split(",")):
        return listed != ""
    return index in {int(part) for part in listed.split(",")}


def _ram_mb() -> int:
    for line in Path("/proc/meminfo").read_text().splitlines():
        name, _, rest = line.partition(":")
        if name == "MemTotal":
            return int(rest.split()[0]) // 1024
    return 0


def _storage_mb(data_dir: Path) -> int:
    data_dir.mkdir(parents=True, exist_ok=True)
    return shutil.disk_usage(data_dir).free // MEBIBYTE
