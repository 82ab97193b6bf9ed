"""BOHB (Falkner, Klein and Hutter, 2018, https://arxiv.org/abs/1807.01774): TPE over the values at one rung.

That is the highest rung with enough values, so that the model learns from short trainings first, and from full ones as
soon as there are enough. The end of a trial is above all rungs. Where the paper has a kernel density estimator of its
own, this is Optuna's TPE, whose constant liar knows of trials that run.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

from app.domain.errors import BadSpec
from app.domain.sweeps.draws import MAX_DRAWS, generator, random_values, seed_of
from app.domain.sweeps.observations import Observation
from app.search import tpe
from app.search.question import FoundValues, Question
from app.search.random_values import at_random
from app.search.unit_cube import varying

# The share of trials whose values the model has no say in, as in the paper: however wrong the values at low rungs are,
# the method is then at most so much slower than Hyperband alone.
RANDOM_FRACTION = 1 / 3
END = math.inf  # the rung of trials that have completed


def suggest(question: Question) -> FoundValues:
    """Values of TPE over the chosen rung; random ones for a third of the trials, and until a rung has enough."""
    needed = fewest(question)
    rung = chosen_rung(question.observations, needed)
    if rung is None:
        return _drawn(question)
    if generator(seed_of(question.seed, 0, "bohb")).random() < RANDOM_FRACTION:
        return _drawn(question, "drawn at random, as a third of all")
    known = tuple(at_rung(question.observations, rung))
    found = tpe.drawn(replace(question, observations=known, startup_trials=needed))
    count = sum(each.state == "completed" for each in known)
    where = "ends of trials" if rung == END else f"values at rung {rung:g}"
    note = f"by {count} {where}"
    return FoundValues(found.values, f"{note}; {found.note}" if found.note else note)


def fewest(question: Question) -> int:
    """So many values a rung needs: the paper's two more than a model of that many parameters, or ``startup_trials``."""
    return max(question.startup_trials, len(varying(question.space)) + 2)


def chosen_rung(observations: Sequence[Observation], needed: int) -> float | None:
    """The highest rung with as many values; None while there is none."""
    counts: dict[float, int] = {}
    for each in observations:
        for rung in _values(each):
            counts[rung] = counts.get(rung, 0) + 1
    return max((rung for rung, count in counts.items() if count >= needed), default=None)


def at_rung(observations: Sequence[Observation], rung: float) -> Iterator[Observation]:
    """Trials that have a value there as completed with it, and those that run without one; no others."""
    for each in observations:
        values = _values(each)
        if rung in values:
            yield replace(each, state="completed", objectives=(values[rung],), reports=())
        elif each.state == "running":
            yield replace(each, reports=())


def _drawn(question: Question, note: str = "") -> FoundValues:
    try:
        return FoundValues(random_values(question.space, question.seed), note)
    except BadSpec:
        return at_random(question, tries=MAX_DRAWS)


def _values(observation: Observation) -> dict[float, float]:
    """The finite values by rung."""
    found: dict[float, float] = {rung: value for rung, value in observation.reports if math.isfinite(value)}
    if observation.state == "completed" and observation.objectives and math.isfinite(observation.objectives[0]):
        found[END] = observation.objectives[0]
    return found
