"""Going on from another job's checkpoint: its weights, its optimizer's moments and its place, but this job's settings.

transformers would take over learning rate, weight decay and schedule of the other job without a word.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch.optim.lr_scheduler import LambdaLR

_OPTIMIZER_FILE = "optimizer.pt"

Settings = list[dict[str, Any]]


def load_optimizer(optimizer: torch.optim.Optimizer, checkpoint: str) -> None:
    """The moments of every weight."""
    optimizer.load_state_dict(torch.load(Path(checkpoint) / _OPTIMIZER_FILE, map_location="cpu", weights_only=True))


def settings_of(optimizer: torch.optim.Optimizer) -> Settings:
    """What is set for each group of its parameters."""
    return [_settings(group) for group in optimizer.param_groups]


def set_again(optimizer: torch.optim.Optimizer, settings: Settings) -> None:
    """As this job has set it, whatever was loaded since."""
    for group, own in zip(optimizer.param_groups, settings, strict=True):
        for name in _settings(group).keys() - own.keys():
            del group[name]
        group.update(own)


def enter_schedule(scheduler: Any, optimizer: torch.optim.Optimizer, step: int) -> None:
    """Set the rate that this job's schedule has after `step`. One that follows measures begins with its first."""
    if not isinstance(scheduler, LambdaLR):
        return
    rates = [base * rate(step) for base, rate in zip(scheduler.base_lrs, scheduler.lr_lambdas, strict=True)]
    place = {"last_epoch": step, "_step_count": step + 1, "_last_lr": rates}
    scheduler.load_state_dict({**scheduler.state_dict(), **place})
    for group, rate in zip(optimizer.param_groups, rates, strict=True):
        group["lr"] = rate


def step_after(epoch: float, steps_per_epoch: int) -> int:
    """How many steps of this job make as many epochs: on other devices a step may have more records or fewer."""
    return round(epoch * steps_per_epoch)


def _settings(group: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in group.items() if name != "params"}
