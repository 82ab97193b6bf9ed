"""Learning rate schedules: from the job's hyperparameters to the arguments of transformers' schedulers."""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch.optim.lr_scheduler import LRScheduler

from app.domain.lifecycle.checkpoints import best_rule
from app.domain.spec.hyperparameters.tables import PLATEAU
from workers.rank.run_context import RunSpec, method_of
from workers.rank.spec_sections import output_config

__all__ = ["PLATEAU", "learning_rate_factor", "scale", "scheduler_kwargs"]

Values = Mapping[str, Any]

_KWARGS: dict[str, Callable[[Values, int], dict[str, Any]]] = {
    "cosine_with_restarts": lambda values, _: {"num_cycles": values["lr_num_cycles"]},
    "cosine_with_min_lr": lambda values, _: {"min_lr_rate": values["min_lr_rate"]},
    "cosine_warmup_with_min_lr": lambda values, _: {
        "min_lr_rate": values["min_lr_rate"],
        "warmup_lr_rate": values["warmup_lr_rate"],
    },
    "polynomial": lambda values, _: {"power": values["lr_power"], "lr_end": values["lr_end"]},
    "inverse_sqrt": lambda values, _: {"timescale": values["lr_timescale"] or None},
    "warmup_stable_decay": lambda values, total_steps: {
        "num_decay_steps": max(1, round(values["lr_decay_ratio"] * total_steps)),
        "decay_type": values["lr_decay_type"],
        "min_lr_ratio": values["min_lr_rate"],
    },
    PLATEAU: lambda values, _: {"factor": values["lr_plateau_factor"], "patience": values["lr_plateau_patience"]},
}


def scheduler_kwargs(spec: RunSpec, total_steps: int) -> dict[str, Any]:
    """Scheduler arguments besides the warm-up steps."""
    name = spec.hyperparameters["lr_scheduler_type"]
    kwargs = _KWARGS[name](spec.hyperparameters, total_steps) if name in _KWARGS else {}
    if "lr_end" in kwargs:
        # The only value that is not relative to the peak rate.
        kwargs["lr_end"] *= learning_rate_factor(spec)
    if name == PLATEAU:
        greater_is_better = best_rule(output_config(spec).checkpoint, method_of(spec))[1]
        kwargs["mode"] = "max" if greater_is_better else "min"
    return kwargs


def learning_rate_factor(spec: RunSpec) -> float:
    """The factor on the job's learning rate since its loss diverged."""
    return float(spec.adjustments.get("learning_rate_factor") or 1.0)


def scale(scheduler: LRScheduler, optimizer: torch.optim.Optimizer, ratio: float) -> None:
    """Multiply every rate of a schedule loaded from a checkpoint; shape and position stay."""
    for group in optimizer.param_groups:
        for name in {"lr", "initial_lr"} & group.keys():
            group[name] *= ratio
    state = scheduler.state_dict()
    rates = {name: [rate * ratio for rate in state[name]] for name in {"base_lrs", "_last_lr"} & state.keys()}
    scheduler.load_state_dict({**state, **rates})
