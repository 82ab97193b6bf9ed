"""The inventory of this machine, from NVML and /proc, without importing torch."""

import logging
import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from app.domain.nodes.sandboxes import WITHOUT_NAMESPACES
from app.domain.scheduling.resources import MIG_PROFILE, Device, gpu_of, normalise_gpu_type, slice_index, slice_of
from app.domain.spec.frameworks.custom import MPI
from app.domain.spec.frameworks.requirements import (
    CLAIM_PARTS,
    EVALUATE,
    EXPORT,
    EXTRAS,
    FULL,
    IMAGES,
    LIMITS,
    LOCKED,
    MOUNTS,
    NAMESPACES,
    NETWORK,
    OWN_USER,
    PEERS,
    STRUCTURED,
    WANDB_CLIENT,
)
from app.host.gpu_devices import MigInstance, UnknownGpuFiles, gpu_files
from app.host.guarded_ports import lack_of_guards
from app.host.images import lack_of_images
from app.host.landlock import lack_of_landlock
from app.host.own_users import lack_of_users
from config.values.rules import HOST_NETWORK
from workers.node.mig_instances import instances_of
from workers.node.node_config import NodeConfig
from workers.node.nvlink import grouped, links_of
from workers.node.nvml import InventoryNvml, MigNvml
from workers.rank.mpi import MPIRUN
from workers.sandbox.control_groups import CONTROLLERS, find_hierarchies
from workers.sandbox.part_trial import lack_of_claim_parts

try:
    import pynvml
except ImportError:  # the `gpu` extra is not installed: no GPU can be offered
    pynvml = None

log = logging.getLogger(__name__)

MEBIBYTE = 1 << 20


@dataclass(frozen=True)
class Gpu:
    device: Device
    uuid: str


@dataclass(frozen=True, kw_only=True)
class Inventory:
    devices: tuple[Device, ...]
    cpu_cores: int
    ram_mb: int
    storage_mb: int


def take_inventory(config: NodeConfig, data_dir: Path) -> Inventory:
    """The devices (declared ones if there are any, else detected GPUs, else CPU slots) and the machine's resources."""
    devices = _declared(config) or find_gpus() or cpu_slots()
    return Inventory(devices=devices, cpu_cores=usable_cores(), ram_mb=_ram_mb(), storage_mb=_storage_mb(data_dir))


def found_capabilities(sandbox: str, data_dir: Path, *, uids: str = "", network: str = "none") -> tuple[str, ...]:
    """Capabilities detected on this node, in addition to the configured ones; ``sandbox``, ``uids`` and ``network``
    are settings.
    """
    extras = (extra.name for extra in (*EXTRAS.values(), EXPORT, EVALUATE, STRUCTURED) if _has_module(extra.module))
    groups = find_hierarchies()
    limits = (LIMITS,) if set(groups.parents) == set(CONTROLLERS) else ()
    rates = groups.held_rates if limits else ()
    shown = () if sandbox in WITHOUT_NAMESPACES else (MOUNTS,)
    # The client is started in a sandbox alone: it connects by a program of its own.
    tracking = (WANDB_CLIENT.name,) if shown and _has_module(WANDB_CLIENT.module) else ()
    images = () if sandbox in WITHOUT_NAMESPACES or lack_of_images(data_dir) else (IMAGES,)
    isolation = () if sandbox in WITHOUT_NAMESPACES else (FULL, NAMESPACES) if limits else (NAMESPACES,)
    own_user = () if not isolation or lack_of_users(uids, data_dir) else (OWN_USER,)
    parts = (CLAIM_PARTS,) if shown and (own_user or _mounts_parts(data_dir)) else ()
    locked = (LOCKED,) if isolation and _has_landlock() else ()
    own_network = () if sandbox in WITHOUT_NAMESPACES or network == HOST_NETWORK else (NETWORK,)
    peers = (PEERS,) if own_user and own_network and not lack_of_guards(uids) else ()
    mpi = (MPI,) if shutil.which(MPIRUN) else ()
    return (
        *extras,
        *tracking,
        *mpi,
        *limits,
        *rates,
        *shown,
        *parts,
        *images,
        *isolation,
        *own_user,
        *locked,
        *own_network,
        *peers,
    )


def _mounts_parts(data_dir: Path) -> bool:
    """An attempt with a user of its own mounts them as it does all that it sees."""
    if lack := lack_of_claim_parts(data_dir):
        log.warning("jobs on this node mount no parts of volume claims: %s", lack)
    return not lack


@cache  # its trial starts a program
def _has_landlock() -> bool:
    return lack_of_landlock(in_sandbox=True) is None


def _has_module(name: str) -> bool:
    """Whether a module is installed; imports only its parent packages."""
    try:
        return find_spec(name) is not None
    except ModuleNotFoundError:  # its parent package is not installed
        return False


def find_gpus(nvml: InventoryNvml | None = pynvml, visible: str | None = None) -> tuple[Device, ...]:
    """The NVIDIA GPUs that this process may use, by NVML index; none without driver or library.

    ``visible`` overrides CUDA_VISIBLE_DEVICES.
    """
    if nvml is None:
        return ()
    try:
        nvml.nvmlInit()
    except nvml.NVMLError:
        return ()
    try:
        gpus = [gpu for index in range(nvml.nvmlDeviceGetCount()) if (gpu := _gpu(nvml, index)) is not None]
        slices = {gpu.device.index: found for gpu in gpus if (found := _slices(nvml, gpu)) is not None}
        whole = [gpu.device.index for gpu in gpus if gpu.device.index not in slices]
        links = {index: links_of(nvml, index) for index in whole}
    except nvml.NVMLError:
        log.warning("the NVIDIA driver does not list its GPUs", exc_info=True)
        return ()
    finally:
        nvml.nvmlShutdown()
    listed = os.environ.get("CUDA_VISIBLE_DEVICES") if visible is None else visible
    every = [part for gpu in gpus for part in slices.get(gpu.device.index, [gpu])]
    if listed is None:
        return grouped([each.device for each in every], links)
    ours = visible_indices(listed, [*gpus, *(part for parts in slices.values() for part in parts)])
    return grouped([each.device for each in every if {each.device.index, gpu_of(each.device.index)} & ours], links)


def lack_of_gpu_files(devices: Sequence[Device], nvml: MigNvml | None = pynvml) -> str:
    """Why jobs can't get these GPUs, and slices of them, apart from each other; empty where they can."""
    real = [each for each in devices if not each.is_cpu and not each.simulated]
    try:
        gpu_files(sorted({gpu_of(each.index) for each in real}), _instances(real, nvml))
    except UnknownGpuFiles as error:
        return str(error)
    return ""


def _instances(devices: Sequence[Device], nvml: MigNvml | None) -> list[MigInstance]:
    """Of those that are slices. Raises UnknownGpuFiles."""
    slices = [each for each in devices if each.index != gpu_of(each.index)]
    if not slices or nvml is None:  # which has found them
        return []
    try:
        numbers = instances_of([each.uuid for each in slices], nvml)
    except nvml.NVMLError as error:
        raise UnknownGpuFiles(f"the driver doesn't tell which MIG slices these are: {error}") from error
    return [
        MigInstance(gpu=gpu_of(each.index), gpu_instance=first, compute_instance=second)
        for each, (first, second) in zip(slices, numbers, strict=True)
    ]


def visible_indices(listed: str, gpus: Sequence[Gpu]) -> set[int]:
    """The GPUs selected by CUDA_VISIBLE_DEVICES: indices or UUID prefixes, up to the first invalid entry."""
    found: set[int] = set()
    for entry in (part.strip() for part in listed.split(",")):
        if entry.isdecimal():
            matching = [gpu.device.index for gpu in gpus if gpu.device.index == int(entry)]
        else:
            kinds = ("GPU-", "MIG-")
            matching = [gpu.device.index for gpu in gpus if entry.startswith(kinds) and gpu.uuid.startswith(entry)]
        if len(matching) != 1:
            if entry != "":
                log.warning("CUDA_VISIBLE_DEVICES: %r is no GPU of this machine; later entries are ignored", entry)
            break
        found.add(matching[0])
    return found


def cpu_slots() -> tuple[Device, ...]:
    """At least two, so that a job with two ranks runs on any laptop."""
    return tuple(Device(index=index, type="cpu") for index in range(max(2, usable_cores())))


def usable_cores() -> int:
    """Cores that this process may run on; fewer than the machine has when an affinity mask applies."""
    return len(os.sched_getaffinity(0))


def _declared(config: NodeConfig) -> tuple[Device, ...]:
    devices = []
    for index, declared in enumerate(each for each in config.devices for _ in range(each.count)):
        kind, memory_mb = normalise_gpu_type(declared.type)
        if declared.mig_profile:
            kind = slice_of(kind, declared.mig_profile)
        memory_mb = declared.memory_mb or memory_mb
        link_group = declared.link_group
        devices.append(Device(index=index, type=kind, memory_mb=memory_mb, simulated=True, link_group=link_group))
    return tuple(devices)


def _gpu(nvml: InventoryNvml, index: int) -> Gpu | None:
    """One GPU; None when it is faulty, so that a faulty GPU does not take the whole node out of service."""
    try:
        handle = nvml.nvmlDeviceGetHandleByIndex(index)
        kind, _ = normalise_gpu_type(_text(nvml.nvmlDeviceGetName(handle)))
        uuid = _text(nvml.nvmlDeviceGetUUID(handle))
    except nvml.NVMLError as error:
        log.warning("GPU %d is not offered: %s", index, error)
        return None
    try:
        memory_mb = int(nvml.nvmlDeviceGetMemoryInfo(handle).total) // MEBIBYTE
    except nvml.NVMLError as error:
        log.warning("GPU %d does not report its memory: %s", index, error)
        memory_mb = 0
    return Gpu(Device(index=index, type=kind, memory_mb=memory_mb), uuid)


def _slices(nvml: InventoryNvml, gpu: Gpu) -> list[Gpu] | None:
    """The MIG slices of a GPU; None when MIG is off. With MIG on, the GPU cannot be used as a whole, even without
    slices.
    """
    handle = nvml.nvmlDeviceGetHandleByIndex(gpu.device.index)
    try:
        if nvml.nvmlDeviceGetMigMode(handle)[0] != nvml.NVML_DEVICE_MIG_ENABLE:
            return None
        most = nvml.nvmlDeviceGetMaxMigDeviceCount(handle)
    except nvml.NVMLError:  # most GPUs do not support MIG and report it this way
        return None
    found = (_slice(nvml, gpu, handle, number) for number in range(most))
    return [part for part in found if part is not None]


def _slice(nvml: InventoryNvml, gpu: Gpu, handle: object, number: int) -> Gpu | None:
    try:
        part = nvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, number)
    except nvml.NVMLError:  # fewer slices exist than the GPU supports
        return None
    try:
        uuid = _text(nvml.nvmlDeviceGetUUID(part))
        name = _text(nvml.nvmlDeviceGetName(part))
        memory_mb = int(nvml.nvmlDeviceGetMemoryInfo(part).total) // MEBIBYTE
    except nvml.NVMLError as error:
        log.warning("MIG slice %d of GPU %d is not offered: %s", number, gpu.device.index, error)
        return None
    profile = name.rpartition(" ")[2]  # from "NVIDIA H100 80GB HBM3 MIG 1g.10gb"
    if not MIG_PROFILE.fullmatch(profile):
        log.warning("MIG slice %d of GPU %d is not offered: %r has no profile", number, gpu.device.index, name)
        return None
    index = slice_index(gpu.device.index, number)
    kind = slice_of(gpu.device.type, profile)
    return Gpu(Device(index=index, type=kind, memory_mb=memory_mb, uuid=uuid), uuid)


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


def _ram_mb() -> int:
    for line in Path("/proc/meminfo").read_text().splitlines():
        name, _, rest = line.partition(":")
        if name == "MemTotal":
            return int(rest.split()[0]) // 1024
    return 0


def _storage_mb(data_dir: Path) -> int:
    data_dir.mkdir(parents=True, exist_ok=True)
    return shutil.disk_usage(data_dir).free // MEBIBYTE
