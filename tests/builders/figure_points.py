"""Trials with values, for the figures of sweeps."""

from collections.abc import Mapping
from typing import Any

from app.domain.sweeps.figures import Point, RungPoint
from app.domain.sweeps.parameters import Parameter
from app.domain.sweeps.space import Space
from app.domain.sweeps.spec import Objective

LOSS = Objective(metric="eval_loss", goal="minimize")
ACCURACY = Objective(metric="eval_accuracy", goal="maximize")
PARAMETERS: dict[str, Any] = {
    "learning_rate": {"type": "double", "min": 1e-5, "max": 1e-3, "scale": "log"},
    "lora_r": {"type": "int", "values": [8, 16, 32]},
    "schedule": {"type": "categorical", "values": ["linear", "cosine"]},
    "warmup": {"type": "double", "min": 0.0, "max": 0.2, "only_if": {"schedule": ["cosine"]}},
    "weight_decay": 0.1,
}


def parameters(raw: Mapping[str, Any] = PARAMETERS) -> tuple[Parameter, ...]:
    return Space.from_json(raw).parameters


def point(number: int, value: float, *, state: str = "COMPLETED", is_feasible: bool = True, **values: Any) -> Point:
    chosen = {"learning_rate": 1e-4, "lora_r": 8, "schedule": "linear", "weight_decay": 0.1, **values}
    return Point(number=number, state=state, value=value, is_feasible=is_feasible, values=chosen)


def report(number: int, rung: int, value: float | None, *, continues: bool = True) -> RungPoint:
    return RungPoint(number=number, rung=rung, value=value, continues=continues, rank=1, compared=1)
