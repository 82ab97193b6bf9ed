"""The option --simulate of `trainyard up`: nodes with GPUs that are only pretended, to try scheduling out anywhere."""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import click

from app.domain.scheduling.resources import normalise_gpu_type
from config.settings import NodeSettings

MOST_DEVICES = 64  # of a node: each may become a process on this machine
_TYPE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,47}")  # it becomes part of the node's name


@dataclass(frozen=True)
class SimulatedNode:
    """``name`` is ``h100-2`` for the second one of that type."""

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
            number.isascii() and number.isdecimal() and 0 < int(number) <= MOST_DEVICES
        ):
            raise click.BadParameter(
                f"{value!r:.150} is no TYPE:COUNT, such as h100:4, with a count from 1 to {MOST_DEVICES}"
            )
        if normalise_gpu_type(kind)[0] in ("", "cpu"):
            raise click.BadParameter(f"{kind!r} is no type of GPU that a job could name; take one such as h100")
        seen[kind] += 1
        nodes.append(SimulatedNode(name=f"{kind}-{seen[kind]}", type=kind, count=int(number)))
    return nodes


simulate_option = click.option(
    "--simulate", "simulated", multiple=True, callback=_parsed, metavar="TYPE:COUNT",
    help="A node that pretends to have so many GPUs of that type, instead of what this machine or "
    "TRAINYARD_NODE_CONFIG has; may be repeated.",
)  # fmt: skip


def written_down(nodes: Sequence[SimulatedNode], directory: Path) -> list[NodeSettings]:
    """Their node.toml files in the directory, and what their workers are started with."""
    return [NodeSettings(name=node.name, config=_written(node, directory)) for node in nodes]


def _written(node: SimulatedNode, directory: Path) -> Path:
    path = directory / f"node-{node.name}.toml"
    path.write_text(f'[[devices]]\ntype = "{node.type}"\ncount = {node.count}\n')
    return path
