"""Which GPUs of this machine NVLink connects, as far as the driver says it (NVML, "NvLink Methods")."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from app.domain.scheduling.resources import Device

log = logging.getLogger(__name__)

SWITCH = "NVSwitch"  # all GPUs of a machine that have a link to one are connected
Address = tuple[int, int, int]  # of a GPU: PCI domain, bus, device


class Links(NamedTuple):
    gpu: Address
    ends: frozenset[Address | str]  # where its active links go


def links_of(nvml: Any, index: int) -> Links | None:
    """None when the driver fails to say one of them: then it is not known."""
    try:
        handle = nvml.nvmlDeviceGetHandleByIndex(index)
        numbers = [link for link in range(nvml.NVML_NVLINK_MAX_LINKS) if _is_active(nvml, handle, link)]
        ends = {end for link in numbers if (end := _end(nvml, handle, link)) is not None}
        return Links(_address(nvml.nvmlDeviceGetPciInfo(handle)), frozenset(ends))
    except nvml.NVMLError as error:
        log.warning("GPU %d does not say where its links go: %s", index, error)
        return None


def grouped(devices: Sequence[Device], links: Mapping[int, Links | None]) -> tuple[Device, ...]:
    """The devices with the numbers of their groups: those that are connected, be it over others of them.

    ``links``: by index of the device; who has none there, or is connected with none of the others, is in no group.
    """
    known = {device.index: each for device in devices if (each := links.get(device.index)) is not None}
    shared = {SWITCH, *(each.gpu for each in known.values())}  # not GPUs that we may not use
    groups: list[tuple[set[int], set[Address | str]]] = []
    for index, (gpu, ends) in known.items():
        members, reached = {index}, {gpu, *(ends & shared)}
        joined = [group for group in groups if group[1] & reached]
        groups = [group for group in groups if not group[1] & reached]
        groups.append((members.union(*(each[0] for each in joined)), reached.union(*(each[1] for each in joined))))
    linked = sorted((members for members, _ in groups if len(members) > 1), key=min)
    number_of = {index: number for number, members in enumerate(linked) for index in members}
    return tuple(replace(device, link_group=number_of.get(device.index)) for device in devices)


def _is_active(nvml: Any, handle: Any, link: int) -> bool:
    try:
        return bool(nvml.nvmlDeviceGetNvLinkState(handle, link) == nvml.NVML_FEATURE_ENABLED)
    except (nvml.NVMLError_InvalidArgument, nvml.NVMLError_NotSupported):  # the GPU has no such link
        return False


def _end(nvml: Any, handle: Any, link: int) -> Address | str | None:
    """None: neither a GPU nor a switch."""
    kind = nvml.nvmlDeviceGetNvLinkRemoteDeviceType(handle, link)
    if kind == nvml.NVML_NVLINK_DEVICE_TYPE_SWITCH:
        return SWITCH
    if kind != nvml.NVML_NVLINK_DEVICE_TYPE_GPU:
        return None
    return _address(nvml.nvmlDeviceGetNvLinkRemotePciInfo(handle, link))


def _address(info: Any) -> Address:
    return info.domain, info.bus, info.device
