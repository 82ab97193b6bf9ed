"""Warm start from another job's checkpoint: its weights, optimizer moments and position, with this job's settings.

transformers would silently take over the other job's learning rate, weight decay and schedule.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch.optim.lr_scheduler import LambdaLR, LRScheduler

_OPTIMIZER_FILE = "optimizer.pt"

Settings = list[dict[str, Any]]


def load_optimizer(optimizer: torch.optim.Optimizer, checkpoint: str) -> None:
    """Load the moments of every weight."""
    optimizer.load_state_dict(torch.load(Path(checkpoint) / _OPTIMIZER_FILE, map_location="cpu", weights_only=True))


def group_settings(optimizer: torch.optim.Optimizer) -> Settings:
    """The settings of each parameter group."""
    return [_settings(group) for group in optimizer.param_groups]


def restore_settings(optimizer: torch.optim.Optimizer, settings: Settings) -> None:
    """Restore this job's settings after a load."""
    for group, own in zip(optimizer.param_groups, settings, strict=True):
        for name in _settings(group).keys() - own.keys():
            del group[name]
        group.update(own)


def set_schedule_step(scheduler: LRScheduler | None, optimizer: torch.optim.Optimizer, step: int) -> None:
    """Set the rate that this job's schedule has after `step`. A metric-driven schedule begins with its first metric."""
    if not isinstance(scheduler, LambdaLR):
        return
    rates = [base * rate(step) for base, rate in zip(scheduler.base_lrs, scheduler.lr_lambdas, strict=True)]
    place = {"last_epoch": step, "_step_count": step + 1, "_last_lr": rates}
    scheduler.load_state_dict({**scheduler.state_dict(), **place})
    for group, rate in zip(optimizer.param_groups, rates, strict=True):
        group["lr"] = rate


def equivalent_step(epoch: float, steps_per_epoch: int) -> int:
    """The number of this job's steps that make as many epochs; the records per step may differ."""
    return round(epoch * steps_per_epoch)


def _settings(group: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in group.items() if name != "params"}
