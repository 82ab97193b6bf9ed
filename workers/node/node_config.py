"""The node's configuration file, node.toml."""

import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from app.domain.names import WORD, WORD_RULE
from app.domain.nodes.limits import NodeLimits, limits_of, problems_of
from app.domain.scheduling.resources import MIG_PROFILE
from config.settings import SettingsError

KNOWN = {"labels", "capabilities", "jobs", "devices"}
KNOWN_DEVICE = ("type", "memory_mb", "count", "mig_profile", "link_group")


class NodeConfigError(SettingsError):
    """node.toml is invalid; ``problems`` lists every problem."""

    def __init__(self, path: Path, problems: list[str]) -> None:
        super().__init__([f"{path}: {problem}" for problem in problems])


@dataclass(frozen=True, kw_only=True)
class DeclaredDevices:
    """Simulated devices: they are scheduled like GPUs of that type and run on the CPU."""

    type: str
    memory_mb: int = 0
    count: int = 1
    mig_profile: str = ""
    link_group: int | None = None  # shared by all devices declared with the same number


@dataclass(frozen=True, kw_only=True)
class NodeConfig:
    labels: tuple[str, ...] = ()
    capabilities: tuple[str, ...] = ()
    jobs: dict[str, Any] = field(default_factory=dict)  # the table as written; `limits` is its interpretation
    devices: tuple[DeclaredDevices, ...] = ()

    @property
    def limits(self) -> NodeLimits:
        return limits_of(self.jobs)


def read_node_config(path: Path | None) -> NodeConfig:
    """Read this node's configuration; without a file everything is detected. Raises NodeConfigError."""
    if path is None:
        return NodeConfig()
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise NodeConfigError(path, [str(error)]) from error
    problems = [f"{name}: unknown; known: {', '.join(sorted(KNOWN))}" for name in sorted(document.keys() - KNOWN)]
    config = NodeConfig(
        labels=_names(document, "labels", problems),
        capabilities=_names(document, "capabilities", problems),
        jobs=_jobs(document, problems),
        devices=_devices(document, problems),
    )
    if problems:
        raise NodeConfigError(path, problems)
    return config


def _names(document: dict[str, Any], name: str, problems: list[str]) -> tuple[str, ...]:
    value = document.get(name, [])
    if not isinstance(value, list) or not all(isinstance(item, str) and item for item in value):
        problems.append(f'{name}: must be a list of strings, such as ["rack-7"]')
        return ()
    # A job can only request words of this form.
    problems += [f"{name}: {item!r:.150} {WORD_RULE}" for item in value if not WORD.fullmatch(item)]
    return tuple(value)


def _jobs(document: dict[str, Any], problems: list[str]) -> dict[str, Any]:
    value = document.get("jobs", {})
    if not isinstance(value, dict):
        problems.append("jobs: must be a table [jobs]")
        return {}
    problems += problems_of(value)
    return value


def _devices(document: dict[str, Any], problems: list[str]) -> tuple[DeclaredDevices, ...]:
    value = document.get("devices", [])
    if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
        problems.append("devices: must be an array of tables [[devices]]")
        return ()
    return tuple(_declared(number, item, problems) for number, item in enumerate(value))


def _declared(number: int, item: dict[str, Any], problems: list[str]) -> DeclaredDevices:
    where = f"devices[{number}]"
    problems += [
        f"{where}.{name}: unknown; known: {', '.join(KNOWN_DEVICE)}" for name in sorted(item.keys() - {*KNOWN_DEVICE})
    ]
    kind, memory_mb, count = item.get("type"), item.get("memory_mb", 0), item.get("count", 1)
    if not isinstance(kind, str) or not kind:
        problems.append(f'{where}.type: must be the name of a device type, such as "h200"')
        kind = ""
    if not _is_whole(memory_mb, 0, 1 << 40):
        problems.append(f"{where}.memory_mb: must be a whole number of at least 0")
        memory_mb = 0
    if not _is_whole(count, 1, 4096):
        problems.append(f"{where}.count: must be a whole number from 1 to 4096")
        count = 1
    profile = item.get("mig_profile", "")
    if profile and not (isinstance(profile, str) and MIG_PROFILE.fullmatch(profile)):
        problems.append(f'{where}.mig_profile: must be a MIG profile, such as "1g.10gb"')
        profile = ""
    group = _link_group(where, item, problems)
    return DeclaredDevices(type=kind, memory_mb=memory_mb, count=count, mig_profile=profile, link_group=group)


def _link_group(where: str, item: dict[str, Any], problems: list[str]) -> int | None:
    group: int | None = item.get("link_group")
    if group is None:
        return None
    if not _is_whole(group, 0, 4095):
        problems.append(f"{where}.link_group: must be a whole number from 0 to 4095")
        return None
    if item.get("mig_profile"):
        problems.append(f"{where}.link_group: slices of a GPU have none; leave it out, or mig_profile")
    return group


def _is_whole(value: object, least: int, most: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and least <= value <= most
