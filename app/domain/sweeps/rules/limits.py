"""How large a sweep may be here: the limits of the settings, which lie within those of the document's format."""

from dataclasses import dataclass

from app.domain.errors import BadSpec
from app.domain.sweeps.parameters import MAX_VALUES
from app.domain.sweeps.space import MAX_PARAMETERS, Space
from app.domain.sweeps.spec import MAX_TRIALS, SweepSpec


@dataclass(frozen=True, kw_only=True)
class SweepLimits:
    """The fields of the settings TRAINYARD_SWEEP_…, with their defaults."""

    max_trials: int = 10_000
    max_parameters: int = 64
    max_values: int = 1_000


DEFAULT = SweepLimits()
# For a sweep that was created when the settings were others.
OF_THE_FORMAT = SweepLimits(max_trials=MAX_TRIALS, max_parameters=MAX_PARAMETERS, max_values=MAX_VALUES)


def check_space(space: Space, limits: SweepLimits) -> None:
    """Raises BadSpec."""
    if len(space.parameters) > limits.max_parameters:
        raise _too_many("parameters", len(space.parameters), limits.max_parameters, "MAX_PARAMETERS")
    for parameter in space.parameters:
        if len(parameter.values) > limits.max_values:
            field = f"parameters.{parameter.name}.values"
            raise _too_many(field, len(parameter.values), limits.max_values, "MAX_VALUES")


def check_trials(spec: SweepSpec, limits: SweepLimits) -> None:
    """Raises BadSpec."""
    most = spec.budget.max_trials
    if most is not None and most > limits.max_trials:
        raise BadSpec(
            f"is {most:,}; at most {limits.max_trials:,} are allowed here (TRAINYARD_SWEEP_MAX_TRIALS)",
            field="budget.max_trials",
        )


def _too_many(field: str, count: int, most: int, setting: str) -> BadSpec:
    return BadSpec(f"has {count:,} entries; at most {most:,} are allowed here (TRAINYARD_SWEEP_{setting})", field=field)
