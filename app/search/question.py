"""What is asked of a method, and what it answers: values for the next trial of a sweep."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from app.domain.sweeps.draws import seed_of
from app.domain.sweeps.observations import Observation
from app.domain.sweeps.parameters import Value
from app.domain.sweeps.space import Space

_SEEDS = 2**32  # what numpy takes


@dataclass(frozen=True, kw_only=True)
class Question:
    """``method`` holds its name, the seed of the sweep, and its options; ``seed`` is that of this trial.

    ``place`` counts the trials before it that were suggested, without those that were enqueued. ``observations`` are
    in the order of their numbers, whatever the order in which they came.
    """

    space: Space
    method: Mapping[str, Any]
    place: int
    seed: int
    objectives: int
    observations: tuple[Observation, ...]
    startup_trials: int

    @property
    def name(self) -> str:
        return str(self.method["name"])

    @property
    def completed(self) -> list[Observation]:
        """Those with an objective that is finite: a method can't compare others."""
        return [each for each in self.observations if each.state == "completed" and _is_finite(each)]

    def numpy_seed(self, attempt: int = 0) -> int:
        """A seed of this trial, another one for each attempt."""
        seed = seed_of(self.seed, attempt, "attempt") if attempt else self.seed
        return seed % _SEEDS

    def sweep_seed(self, purpose: str, place: int = 0) -> int:
        """A seed that all trials of the sweep share."""
        return seed_of(int(self.method["seed"]), place, purpose) % _SEEDS


@dataclass(frozen=True)
class FoundValues:
    """Values for the trial; ``note`` says what a reader of its history could not guess."""

    values: dict[str, Value]
    note: str = ""


def question_of(raw: Mapping[str, Any]) -> Question:
    """Read a line of the protocol."""
    space = raw["space"]
    observations = [Observation.from_json(each) for each in raw["observations"]]
    return Question(
        space=Space.from_json(space["parameters"], space["require"]),
        method=raw["method"],
        place=raw["place"],
        seed=raw["seed"],
        objectives=raw["directions"],
        observations=tuple(sorted(observations, key=lambda each: each.number)),
        startup_trials=raw["startup_trials"],
    )


def _is_finite(observation: Observation) -> bool:
    return bool(observation.objectives) and all(math.isfinite(each) for each in observation.objectives)
