"""NSGA-II by Optuna, for several objectives.

Optuna writes the generation of a trial into the study when it is asked for. Here generations follow from the
observations: so many completed trials as a population has, in the order of their numbers. One after the other, that is
what Optuna does, too.
"""

from collections.abc import Sequence

from optuna import Study
from optuna.samplers import NSGAIISampler
from optuna.trial import FrozenTrial, TrialState

from app.search.question import FoundValues, Question
from app.search.random_values import at_random
from app.search.studies import asked, study_of, trials_of

TRIES = 50


def suggest(question: Question) -> FoundValues:
    """Values of Optuna's sampler, drawn again until they meet `require`."""
    trials = trials_of(question)
    sampler = _ByNumber(trials, population_size=int(question.method["population"]), seed=question.numpy_seed())
    for _ in range(TRIES):
        values = asked(study_of(question, trials, sampler), question.space)
        if question.space.holds(values):
            return FoundValues(values)
    return at_random(question, tries=TRIES)


class _ByNumber(NSGAIISampler):
    """Overrides what Optuna offers for it: which trials are a generation, and which are its parents."""

    def __init__(self, trials: Sequence[FrozenTrial], *, population_size: int, seed: int) -> None:
        super().__init__(population_size=population_size, seed=seed)
        self._completed = [trial for trial in trials if trial.state is TrialState.COMPLETE]
        self._size = population_size
        self._parents: list[list[FrozenTrial]] = [[]]  # by generation; the first one has none

    def get_trial_generation(self, study: Study, trial: FrozenTrial) -> int:  # noqa: ARG002 – Optuna's signature
        return len(self._completed) // self._size

    def get_population(self, study: Study, generation: int) -> list[FrozenTrial]:  # noqa: ARG002 – Optuna's signature
        return self._completed[generation * self._size : (generation + 1) * self._size]

    def get_parent_population(self, study: Study, generation: int) -> list[FrozenTrial]:
        # One after the other: each asks for that before it, and a recursion could be too deep.
        while len(self._parents) <= generation:
            selected = self.select_parent(study, len(self._parents))
            self._parents.append(sorted(selected, key=lambda trial: trial.number))
        return self._parents[generation]
