"""How devices are drawn: a square each, with a letter for the project that uses it, or how much it does in percent.

Of many nodes, each is one square.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from string import ascii_uppercase

from app.services.nodes.device_grid import FREE, OUT, PART, DeviceSeen, NodeSeen, NodeSum

ALLOCATION, UTILIZATION, MEMORY = "allocation", "utilization", "memory"
VIEWS = (ALLOCATION, UTILIZATION, MEMORY)
OTHERS = "another project"  # one that the reader may not see
_TINTS = 8
_HEATS = 5
_BAD = ("lost", "quarantined")
_SYMBOLS = {"lost": "✕", "quarantined": "⊘", "draining": "◔", "drained": "‖"}


@dataclass(frozen=True, kw_only=True)
class Square:
    """``kind``: the classes of its style."""

    text: str
    kind: str
    title: str


@dataclass(frozen=True, kw_only=True)
class ProjectMark:
    """A project's letter and tint on this page, and how many devices it uses, wholly or in part."""

    letter: str
    tint: str
    devices: int


def marks_of(nodes: Iterable[NodeSeen]) -> dict[str, ProjectMark]:
    """Project → its mark, in the order of names; projects that the reader may not see are one."""
    counts: dict[str, int] = {}
    for device in (device for node in nodes for device in node.devices):
        for project in device.projects:
            counts[project or OTHERS] = counts.get(project or OTHERS, 0) + 1
    names = sorted(counts, key=lambda name: (name == OTHERS, name))
    return {
        name: ProjectMark(letter=letter, tint=f"tint-{at % _TINTS}", devices=counts[name])
        for at, (name, letter) in enumerate(zip(names, _letters(), strict=False))
    }


def squares(node: NodeSeen, view: str, marks: Mapping[str, ProjectMark]) -> list[Square]:
    return [_square(device, view, marks) for device in node.devices]


def node_square(node: NodeSum, view: str) -> Square:
    """A whole node as one square: how many of its devices are free, or how much they do on average in percent."""
    counts = {"used": node.used, "partly used": node.part, "free": node.free, "out of service": node.out}
    devices = ", ".join(f"{count} {name}" for name, count in counts.items() if count) or "no devices"
    title = f"{node.name}: {node.state}; {devices}"
    if view == ALLOCATION:
        if node.state != "ready" or not node.total:
            return Square(text=_SYMBOLS.get(node.state, "–"), kind="out" if node.state in _BAD else "free", title=title)
        return Square(text=str(node.free), kind=_heat((node.total - node.free) / node.total), title=title)
    part = node.busy if view == UTILIZATION else node.memory
    if part is None:
        return Square(text="–", kind="free", title=f"{title}; no sample")
    return Square(text=f"{100 * part:.0f}", kind=_heat(part), title=f"{title}; {view} {part:.0%}")


def in_words(node: NodeSeen, view: str) -> str:
    """The squares of a node for those who do not see them."""
    if view == ALLOCATION:
        return "; ".join(_counted([_state_of(device) for device in node.devices])) or "no devices"
    return "; ".join(f"device {device.details.device.index}: {_measured(device, view)}" for device in node.devices)


def _square(device: DeviceSeen, view: str, marks: Mapping[str, ProjectMark]) -> Square:
    title = _title(device)
    if device.state == OUT:
        return Square(text="✕", kind="out", title=title)
    if view == ALLOCATION:
        if device.state == FREE:
            return Square(text="", kind="free", title=title)
        mark = marks.get(device.projects[0] or OTHERS) if device.projects else None
        letter, tint = (mark.letter, mark.tint) if mark else ("?", "tint-0")
        if device.state == PART:
            return Square(text=f"{100 * device.details.share_in_use:.0f}", kind=f"part {tint}", title=title)
        return Square(text="+" if len(device.projects) > 1 else letter, kind=f"used {tint}", title=title)
    part = device.busy_part if view == UTILIZATION else device.memory_part
    if part is None:
        return Square(text="–", kind="free", title=title)
    return Square(text=f"{100 * part:.0f}", kind=_heat(part), title=title)


def _heat(part: float) -> str:
    return f"heat-{min(_HEATS - 1, int(part * _HEATS))}"


def _title(device: DeviceSeen) -> str:
    about = device.details.device
    parts = [f"Device {about.index}, {about.type}", _state_of(device)]
    parts += [f"utilization {device.busy_part:.0%}"] if device.busy_part is not None else []
    parts += [f"memory {device.memory_part:.0%}"] if device.memory_part is not None else []
    return " · ".join(parts)


def _state_of(device: DeviceSeen) -> str:
    if device.state == OUT:
        return "out of service"
    if device.state == FREE:
        return "free"
    names = " and ".join(name or OTHERS for name in device.projects) or "a job"
    return f"used by {names}" if device.state != PART else f"{device.details.share_in_use:.0%} used by {names}"


def _measured(device: DeviceSeen, view: str) -> str:
    part = device.busy_part if view == UTILIZATION else device.memory_part
    return "no sample" if part is None else f"{part:.0%}"


def _counted(texts: Sequence[str]) -> list[str]:
    return [f"{texts.count(text)} {text}" for text in dict.fromkeys(texts)]


def _letters() -> Iterable[str]:
    yield from ascii_uppercase
    yield from (first + second for first, second in product(ascii_uppercase, repeat=2))
