"""Detects which GPUs of this machine are connected by NVLink, from NVML ("NvLink Methods")."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from app.domain.scheduling.resources import Device
from workers.node.nvml import LinkNvml, PciInfo

log = logging.getLogger(__name__)

SWITCH = "NVSwitch"  # every GPU with a link to an NVSwitch is connected to all others with one
Address = tuple[int, int, int]  # PCI domain, bus and device of a GPU


class Links(NamedTuple):
    gpu: Address
    ends: frozenset[Address | str]  # endpoints of its active links


def links_of(nvml: LinkNvml, index: int) -> Links | None:
    """The links of a GPU; None when the driver fails to report one of them, so that the topology is unknown."""
    try:
        handle = nvml.nvmlDeviceGetHandleByIndex(index)
        numbers = [link for link in range(nvml.NVML_NVLINK_MAX_LINKS) if _is_active(nvml, handle, link)]
        ends = {end for link in numbers if (end := _end(nvml, handle, link)) is not None}
        return Links(_address(nvml.nvmlDeviceGetPciInfo(handle)), frozenset(ends))
    except nvml.NVMLError as error:
        log.warning("GPU %d does not report its NVLink endpoints: %s", index, error)
        return None


def grouped(devices: Sequence[Device], links: Mapping[int, Links | None]) -> tuple[Device, ...]:
    """The devices with their link group numbers: devices that are connected, directly or through each other.

    ``links`` is keyed by device index. A device without an entry, or without a connection to another device, is in no
    group.
    """
    known = {device.index: each for device in devices if (each := links.get(device.index)) is not None}
    shared = {SWITCH, *(each.gpu for each in known.values())}  # excludes GPUs that this process may not use
    groups: list[tuple[set[int], set[Address | str]]] = []
    for index, (gpu, ends) in known.items():
        members, reached = {index}, {gpu, *(ends & shared)}
        joined = [group for group in groups if group[1] & reached]
        groups = [group for group in groups if not group[1] & reached]
        groups.append((members.union(*(each[0] for each in joined)), reached.union(*(each[1] for each in joined))))
    linked = sorted((members for members, _ in groups if len(members) > 1), key=min)
    number_of = {index: number for number, members in enumerate(linked) for index in members}
    return tuple(replace(device, link_group=number_of.get(device.index)) for device in devices)


def _is_active(nvml: LinkNvml, handle: object, link: int) -> bool:
    try:
        return bool(nvml.nvmlDeviceGetNvLinkState(handle, link) == nvml.NVML_FEATURE_ENABLED)
    except (nvml.NVMLError_InvalidArgument, nvml.NVMLError_NotSupported):  # the GPU has no such link
        return False


def _end(nvml: LinkNvml, handle: object, link: int) -> Address | str | None:
    """The other end of a link; None when it is neither a GPU nor a switch."""
    kind = nvml.nvmlDeviceGetNvLinkRemoteDeviceType(handle, link)
    if kind == nvml.NVML_NVLINK_DEVICE_TYPE_SWITCH:
        return SWITCH
    if kind != nvml.NVML_NVLINK_DEVICE_TYPE_GPU:
        return None
    return _address(nvml.nvmlDeviceGetNvLinkRemotePciInfo(handle, link))


def _address(info: PciInfo) -> Address:
    return info.domain, info.bus, info.device
