"""The option --simulate of `trainyard up`: nodes with simulated GPUs, to try scheduling on any machine."""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import click

from app.domain.scheduling.resources import normalise_gpu_type
from config.node import NodeSettings

MAX_DEVICES = 64  # per node: each may become a process on this machine
_PREFIX = "node-"
_TYPE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,47}")  # it becomes part of the node's name


@dataclass(frozen=True)
class SimulatedNode:
    """A simulated node; ``name`` is, for example, ``h100-2`` for the second node of type h100."""

    name: str
    type: str
    count: int


def _parsed(context: click.Context, parameter: click.Parameter, values: tuple[str, ...]) -> list[SimulatedNode]:
    del context, parameter
    seen: Counter[str] = Counter()
    nodes = []
    for value in values:
        kind, _, number = value.rpartition(":")
        if not _TYPE.fullmatch(kind) or not (
            number.isascii() and number.isdecimal() and 0 < int(number) <= MAX_DEVICES
        ):
            raise click.BadParameter(
                f"{value!r:.150} is not TYPE:COUNT, such as h100:4, with a count from 1 to {MAX_DEVICES}"
            )
        if normalise_gpu_type(kind)[0] in ("", "cpu"):
            raise click.BadParameter(f"{kind!r} is not a GPU type that a job can request; use one such as h100")
        seen[kind] += 1
        nodes.append(SimulatedNode(name=f"{kind}-{seen[kind]}", type=kind, count=int(number)))
    return nodes


simulate_option = click.option(
    "--simulate",
    "simulated",
    multiple=True,
    callback=_parsed,
    metavar="TYPE:COUNT",
    help="Add a node with COUNT simulated GPUs of TYPE, instead of this machine's or "
    "TRAINYARD_NODE_CONFIG's devices; repeatable.",
)


def write_node_configs(nodes: Sequence[SimulatedNode], directory: Path) -> list[NodeSettings]:
    """Write a node.toml per node to the directory; returns the settings of the node workers."""
    return [NodeSettings(name=node.name, config=_written(node, directory)) for node in nodes]


def simulated_before(directory: Path) -> list[tuple[str, Path]]:
    """Name and node.toml of every simulated node that a start has had, and that is not removed yet."""
    return [(path.stem.removeprefix(_PREFIX), path) for path in sorted(directory.glob(f"{_PREFIX}*.toml"))]


def _written(node: SimulatedNode, directory: Path) -> Path:
    path = directory / f"{_PREFIX}{node.name}.toml"
    path.write_text(f'[[devices]]\ntype = "{node.type}"\ncount = {node.count}\n')
    return path
