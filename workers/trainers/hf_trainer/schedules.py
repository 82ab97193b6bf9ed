"""How the learning rate goes: from our hyperparameters to the arguments of transformers' schedulers."""

from collections.abc import Callable, Mapping
from typing import Any

from app.domain.checkpoints import best_rule
from app.domain.hyperparameter_tables import PLATEAU
from workers.run_context import RunSpec

__all__ = ["PLATEAU", "scheduler_kwargs"]

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
    """What the chosen scheduler wants to know besides the steps of the warm-up."""
    name = spec.hyperparameters["lr_scheduler_type"]
    kwargs = _KWARGS[name](spec.hyperparameters, total_steps) if name in _KWARGS else {}
    if name == PLATEAU:
        greater_is_better = best_rule(spec.output_config.get("checkpoint") or {})[1]
        kwargs["mode"] = "max" if greater_is_better else "min"
    return kwargs
