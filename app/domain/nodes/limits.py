"""Node limits: what an operator allows and presets for jobs, the ``[jobs]`` table of node.toml. Pure."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from types import MappingProxyType
from typing import Any


@dataclass(frozen=True, kw_only=True)
class LimitKey:
    """A key of the table; ``rule`` describes in words what ``allows`` tests."""

    rule: str
    default: str
    meaning: str
    allows: Callable[[object], bool]


def _whole(least: int, most: int, *, default: str, meaning: str) -> LimitKey:
    def allows(value: object) -> bool:
        return isinstance(value, int) and not isinstance(value, bool) and least <= value <= most

    return LimitKey(rule=f"a whole number from {least} to {most}", default=default, meaning=meaning, allows=allows)


def _flag(meaning: str, default: str = "true") -> LimitKey:
    return LimitKey(
        rule="true or false", default=default, meaning=meaning, allows=lambda value: isinstance(value, bool)
    )


def _is_amount(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < math.inf


KEYS: Mapping[str, LimitKey] = MappingProxyType(
    {
        "max_concurrent": _whole(1, 4096, default="", meaning="At most so many jobs run on the node at a time"),
        "auto_accept": _flag(
            "false: a node that registers for the first time is `drained` until an administrator enables it"
        ),
        "auto_accept_min_payment": LimitKey(
            rule="a number of at least 0",
            default="",
            allows=_is_amount,
            meaning="Has no effect: there are no payments. Accepted so that a node.toml of CyxWiz can be used as it is",
        ),
        "accept_training": _flag("false: the node is given no training, but inference jobs and evaluations"),
        "accept_inference": _flag("false: the node is given trainings only: no batches, features and evaluations"),
        "share_across_projects": _flag(
            "true: jobs of different projects may each have a part of one GPU (`gpu_fraction`), where nothing but "
            "their own code keeps them out of each other's memory",
            default="false",
        ),
        "default_gpu_memory_percent": _whole(
            1,
            100,
            default="",
            meaning="How much of its GPU's memory a rank of a built-in trainer may take; beyond it, it is out of "
            "memory. No effect on the CPU, nor on custom scripts",
        ),
        "default_cpu_threads": _whole(
            1, 4096, default="", meaning="Threads of each rank, for jobs without `cpu_cores`"
        ),
        "checkpoint_interval_epochs": _whole(
            1,
            10**6,
            default="",
            meaning="Save at the end of every so many epochs, for jobs with neither `save_strategy` nor `save_steps`",
        ),
        "max_checkpoints": _whole(
            1, 10**6, default="", meaning="Checkpoints that are kept, for jobs without `save_total_limit`"
        ),
        "heartbeat_interval_ms": _whole(
            100,
            60_000,
            default="",
            meaning="How often the node reports itself, instead of `TRAINYARD_NODE_HEARTBEAT_SECONDS`; it is lost "
            "after `TRAINYARD_NODE_LOST_SECONDS`, or two of these if that is longer",
        ),
        "progress_report_interval_ms": _whole(
            100, 60_000, default="1000", meaning="How often progress and metrics of a running job are written down"
        ),
    }
)


@dataclass(frozen=True, kw_only=True)
class NodeLimits:
    """The keys that have an effect; None where the operator sets nothing."""

    max_concurrent: int | None = None
    auto_accept: bool = True
    accept_training: bool = True
    accept_inference: bool = True
    share_across_projects: bool = False
    default_gpu_memory_percent: int | None = None
    default_cpu_threads: int | None = None
    checkpoint_interval_epochs: int | None = None
    max_checkpoints: int | None = None
    heartbeat_interval_ms: int | None = None
    progress_report_interval_ms: int = 1000

    @property
    def heartbeat_seconds(self) -> float | None:
        return None if self.heartbeat_interval_ms is None else self.heartbeat_interval_ms / 1000

    @property
    def job_defaults(self) -> dict[str, int]:
        """Defaults for a job whose document leaves these fields out, from its first attempt on."""
        presets = {
            "checkpoint_interval_epochs": self.checkpoint_interval_epochs,
            "max_checkpoints": self.max_checkpoints,
        }
        return {name: value for name, value in presets.items() if value is not None}


def problems_of(table: Mapping[str, Any]) -> list[str]:
    """Validation errors of a ``[jobs]`` table, one per key."""
    known = ", ".join(KEYS)
    unknown = [f"jobs.{name}: unknown; known: {known}" for name in sorted(table.keys() - KEYS.keys())]
    wrong = [
        f"jobs.{name}: must be {key.rule}"
        for name, key in KEYS.items()
        if name in table and not key.allows(table[name])
    ]
    return unknown + wrong


def limits_of(stored: Mapping[str, Any]) -> NodeLimits:
    """The limits that a node has registered; values that an older worker accepted unchecked are dropped if invalid."""
    given = {each.name: stored[each.name] for each in fields(NodeLimits) if each.name in stored}
    return NodeLimits(**{name: value for name, value in given.items() if KEYS[name].allows(value)})
