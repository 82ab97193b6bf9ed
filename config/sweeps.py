"""Limits of sweeps. The formats of documents have absolute ones besides, in app/domain/sweeps."""

from dataclasses import dataclass

from config.values import rules
from config.values.fields import setting


@dataclass(frozen=True, kw_only=True)
class SweepSettings:
    max_trials: int = setting(
        10_000,
        "largest budget.max_trials of a sweep, and most trials, or points of a grid, without one",
        rules.up_to(100_000),
    )
    max_parameters: int = setting(64, "most parameters of a sweep", rules.up_to(256))
    max_values: int = setting(1_000, "most listed values of one parameter", rules.up_to(10_000))
