"""Questions for the methods of app.search, and objectives to try them on."""

import random
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from app.domain.sweeps.draws import random_values, seed_of
from app.domain.sweeps.observations import Observation, State
from app.domain.sweeps.parameters import Value
from app.domain.sweeps.space import Space
from app.domain.sweeps.spec import Method
from app.search.question import FoundValues, Question

PLAIN = {
    "x": {"type": "double", "min": -5.0, "max": 5.0},
    "rate": {"type": "double", "min": 1e-5, "max": 1e-1, "scale": "log"},
    "part": {"type": "double", "min": 0.1, "max": 0.9, "step": 0.1},
    "size": {"type": "int", "min": 4, "max": 33, "step": 4},
    "width": {"type": "int", "min": 1, "max": 300, "scale": "log"},
    "kind": {"type": "categorical", "values": ["a", "b", "c"]},
    "flag": {"type": "bool"},
    "fixed": 7,
}
CONDITIONAL = {
    "warmup": {"type": "double", "min": 0.0, "max": 0.2, "only_if": {"schedule": ["cosine"]}},
    "schedule": {"type": "categorical", "values": ["linear", "cosine"]},
    "power": {"type": "int", "min": 1, "max": 4, "only_if": {"schedule": ["linear"]}},
    "rate": {"type": "double", "min": 0.0, "max": 1.0},
}
NUMBERS = {name: {"type": "double", "min": -5.0, "max": 5.0} for name in ("x", "y", "z")}

STATES: tuple[State, ...] = ("completed", "stopped", "failed", "running")


def space_of(parameters: Mapping[str, Any], *require: str) -> Space:
    return Space.from_json(parameters, require)


def question_of(
    name: str,
    space: Space,
    observations: Sequence[Observation] = (),
    *,
    number: int | None = None,
    objectives: int = 1,
    **options: Any,
) -> Question:
    """As the services ask it, with the seed of the trial that comes next."""
    method = Method(name=name, **options)
    number = len(observations) if number is None else number
    return Question(
        space=space,
        method=asdict(method),
        place=number,
        seed=seed_of(method.seed, number),
        objectives=objectives,
        observations=tuple(observations),
        startup_trials=method.startup_trials,
    )


def mixed_history(space: Space, count: int, *, constraints: int = 0) -> list[Observation]:
    """Observations of every state with random values and objectives, the same for every call."""
    source = random.Random(count)
    found = []
    for number in range(count):
        state = source.choices(STATES, [6, 2, 1, 1])[0]
        has_value = state in ("completed", "stopped")
        found.append(
            Observation(
                number=number,
                values=random_values(space, number),
                state=state,
                objectives=(source.gauss(0, 1),) if has_value else (),
                step=source.choice([100, 300]) if state == "stopped" else 0,
                violations=tuple(source.gauss(-1, 1) for _ in range(constraints)) if state == "completed" else (),
            )
        )
    return found


def completed(number: int, values: Mapping[str, Value], *objectives: float) -> Observation:
    return Observation(number=number, values=values, state="completed", objectives=objectives)


def numbers(found: FoundValues) -> dict[str, float]:
    """The values of a space that has numbers only."""
    return {name: float(value) for name, value in found.values.items()}


def program_without(library: str) -> str:
    """`python -m app.search` where a library is not installed."""
    return f"""
import runpy, sys
class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] == {library!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Missing())
runpy.run_module("app.search", run_name="__main__")
"""


def quadratic(values: Mapping[str, Any]) -> float:
    """Its minimum of 0 lies beside the middle, at 1, -2 and 3."""
    return float((values["x"] - 1) ** 2 + (values["y"] + 2) ** 2 + (values["z"] - 3) ** 2)
