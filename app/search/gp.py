"""Gaussian process by Optuna, which needs torch; its time grows with the cube of completed trials, so TPE follows.

Like Optuna's sampler it learns from completed trials, not from those that were stopped early.
"""

from importlib.util import find_spec

from optuna.samplers import GPSampler

from app.search import tpe
from app.search.question import FoundValues, Question
from app.search.studies import asked, study_of, trials_of

MOST_COMPLETED = 300
TRIES = 3  # each fits the process anew


def suggest(question: Question) -> FoundValues:
    if find_spec("torch") is None:
        raise ModuleNotFoundError("No module named 'torch'", name="torch")
    completed = len(question.completed)
    if completed > MOST_COMPLETED:
        return _by_tpe(question, f"gp learns from {MOST_COMPLETED} completed trials at most, and there are {completed}")
    trials = trials_of(question)
    for attempt in range(TRIES):
        sampler = GPSampler(
            seed=question.numpy_seed(attempt), n_startup_trials=question.startup_trials, warn_independent_sampling=False
        )
        values = asked(study_of(question, trials, sampler), question.space)
        if question.space.holds(values):
            return FoundValues(values, f"by {len(trials)} trials")
    return _by_tpe(question, f"{TRIES} draws of gp did not meet `require`")


def _by_tpe(question: Question, reason: str) -> FoundValues:
    found = tpe.drawn(question)
    return FoundValues(found.values, f"by tpe: {reason}" + (f"; {found.note}" if found.note else ""))
