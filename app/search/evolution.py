"""CMA-ES by the cmaes library.

Not by Optuna's sampler, which keeps the state of its optimizer in the trials: here the state follows from the
observations alone. Those that ended are divided into generations in the order of their numbers; each full one is passed
to a new optimizer, and the seed of the trial draws from what results. So a trial never waits for others that run, and
one after the other this is CMA-ES itself.
"""

import numpy as np
from cmaes import CMA

from app.domain.sweeps.observations import Observation
from app.search.question import FoundValues, Question
from app.search.random_values import at_random
from app.search.unit_cube import point_of, values_at, varying

TRIES = 1000
SIGMA = 1 / 6  # of the range, as Optuna has it


def suggest(question: Question) -> FoundValues:
    """Values of the current distribution, drawn again until they meet `require`.

    ``sigma0`` is a share of the range; ``restarts`` is how often it may begin again, with twice the population
    (Auger and Hansen 2005).
    """
    if not varying(question.space):
        return FoundValues(values_at(question.space, []))
    optimizer = _optimizer_of(question)
    optimizer.reseed_rng(question.numpy_seed())
    for _ in range(TRIES):
        values = values_at(question.space, optimizer.ask().tolist())
        if question.space.holds(values):
            return FoundValues(values)
    return at_random(question, tries=TRIES)


def _optimizer_of(question: Question) -> CMA:
    """The optimizer that has seen all full generations."""
    ended = [each for each in question.observations if each.objectives and each.state in ("completed", "stopped")]
    optimizer, restarts, at = _begun(question, restart=0), 0, 0
    while len(generation := ended[at : at + optimizer.population_size]) == optimizer.population_size:
        at += optimizer.population_size
        points = [np.array(point_of(question.space, each.values)) for each in generation]
        optimizer.tell(list(zip(points, _losses(generation), strict=True)))
        if restarts < int(question.method["restarts"]) and optimizer.should_stop():
            restarts += 1
            optimizer = _begun(question, restart=restarts)
    return optimizer


def _begun(question: Question, *, restart: int) -> CMA:
    dimensions = len(varying(question.space))
    mean = np.full(dimensions, 0.5)
    if restart:
        mean = np.random.default_rng(question.sweep_seed("restart", restart)).random(dimensions)
    population = CMA(mean=mean, sigma=1.0).population_size * 2**restart
    return CMA(
        mean=mean,
        sigma=float(question.method["sigma0"] or SIGMA),
        bounds=np.array([[0.0, 1.0]] * dimensions),
        n_max_resampling=10 * dimensions,
        population_size=population,
    )


def _losses(generation: list[Observation]) -> list[float]:
    """Their objectives, which count by rank only: worse than any of these are trials that were stopped, then those
    that break a constraint.
    """
    compared = [each for each in generation if _standing(each)[0] == 0]
    worst = max((each.objectives[0] for each in compared), default=0.0)
    others = sorted((each for each in generation if _standing(each)[0]), key=_standing)
    behind = {each.number: worst + place for place, each in enumerate(others, start=1)}
    return [behind.get(each.number, each.objectives[0]) for each in generation]


def _standing(observation: Observation) -> tuple[float, ...]:
    violated = sum(each for each in observation.violations if each > 0)
    if violated > 0:
        return (2, violated)
    if observation.state == "stopped":
        return (1, -observation.step, observation.objectives[0])
    return (0,)
