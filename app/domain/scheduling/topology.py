"""Device topology: choose free devices of one NVLink group, if possible. Pure."""

from collections.abc import Sequence

from app.domain.scheduling.resources import Device, NodeCapacity


def together(node: NodeCapacity, free: Sequence[Device], count: int) -> tuple[Device, ...]:
    """Choose ``count`` free devices in order; when all are in one group, or none is, the first ones.

    Best fit: of the groups with enough free devices, take the smallest, and break an unused group only if no other
    fits; a device without links is a group by itself. When no group has enough, the largest are taken first.
    """
    if len(free) == count or len({device.link_group for device in free}) == 1:
        return tuple(free[:count])
    used = {device.link_group for device in node.devices if device.index not in node.free}
    groups: dict[int, list[Device]] = {}
    for device in free:
        alone = -1 - device.index
        groups.setdefault(alone if device.link_group is None else device.link_group, []).append(device)
    chosen: set[int] = set()
    largest_first = sorted(groups.values(), key=len, reverse=True)  # ties: by index of the first device
    for place, group in enumerate(largest_first):
        missing = count - len(chosen)
        if len(group) >= missing:
            enough = (each for each in largest_first[place:] if len(each) >= missing)
            best = min(enough, key=lambda each: (_breaks(each, missing, used), len(each)))
            chosen.update(device.index for device in best[:missing])
            break
        chosen.update(device.index for device in group)
    return tuple(device for device in free if device.index in chosen)


def are_linked(devices: Sequence[Device]) -> bool:
    """Whether these are several devices of one group."""
    return len(devices) > 1 and devices[0].link_group is not None and len({d.link_group for d in devices}) == 1


def _breaks(group: Sequence[Device], count: int, used: set[int | None]) -> bool:
    return len(group) > count and group[0].link_group not in used
