"""Optimizers and learning rate schedules of transformers, by which both tools name them."""

from collections.abc import Mapping
from typing import Any

from app.cli.client.imports.draft import Draft

_OPTIMIZERS = {
    "adamw_torch_fused": "adamw_torch_fused",
    "adamw_torch": "adamw_torch",
    "adamw_hf": "adamw_torch",
    "adafactor": "adafactor",
    "adagrad": "adagrad",
    "rmsprop": "rmsprop",
    "sgd": "sgd",
}
_IN_PLACE = "adamw_torch_fused"
_SCHEDULES = (
    "linear",
    "cosine",
    "cosine_with_restarts",
    "cosine_with_min_lr",
    "cosine_warmup_with_min_lr",
    "polynomial",
    "constant",
    "constant_with_warmup",
    "inverse_sqrt",
    "warmup_stable_decay",
    "reduce_lr_on_plateau",
)
_WITHOUT_WARMUP = ("constant", "reduce_lr_on_plateau")
_ARGUMENTS = {
    "num_cycles": "lr_num_cycles",
    "min_lr_rate": "min_lr_rate",
    "warmup_lr_rate": "warmup_lr_rate",
    "power": "lr_power",
    "lr_end": "lr_end",
    "timescale": "lr_timescale",
    "decay_type": "lr_decay_type",
    "factor": "lr_plateau_factor",
    "patience": "lr_plateau_patience",
}


def apply_optimizer(draft: Draft, key: str, value: str) -> None:
    if value in _OPTIMIZERS:
        draft.set("optim", _OPTIMIZERS[value], origin=key)
        return
    reason = f"{_IN_PLACE} is in its place"
    if "8bit" in value:
        reason += ": with a full training its state takes four times the memory, with an adapter it hardly counts"
    elif "paged" in value:
        reason += ": its state stays on the device; DEEPSPEED with offload_optimizer cpu keeps it in host memory"
    draft.note(key, value, reason)


def apply_schedule(draft: Draft, key: str, value: str, arguments: Mapping[str, Any]) -> None:
    """``arguments`` are those of ``lr_scheduler_kwargs``."""
    if value not in _SCHEDULES:
        draft.note(key, value, f"cosine is in its place; known: {', '.join(_SCHEDULES)}")
        value = "cosine"
    draft.set("lr_scheduler_type", value, origin=key)
    for name, argument in arguments.items():
        if name in _ARGUMENTS:
            draft.set(_ARGUMENTS[name], argument, origin=f"lr_scheduler_kwargs.{name}")
        else:
            draft.note(f"lr_scheduler_kwargs.{name}", argument, "no hyperparameter has this meaning")
    for name in ("warmup_steps", "warmup_ratio"):
        given = draft.hyperparameters.get(name)
        if given and (value in _WITHOUT_WARMUP or float(given) == 0):
            del draft.hyperparameters[name]
            if float(given):
                draft.note(draft.origins[name], given, f"{value} has no warm-up; constant_with_warmup has one")
    if "warmup_steps" in draft.hyperparameters:
        draft.hyperparameters.pop("warmup_ratio", None)  # transformers: steps override the ratio
