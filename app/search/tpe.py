"""Tree-structured Parzen estimator by Optuna: multivariate, with the constant liar for trials that run."""

from optuna.samplers import TPESampler

from app.search.question import FoundValues, Question
from app.search.random_values import at_random
from app.search.studies import asked, study_of, trials_of

TRIES = 50
# With many observations a draw takes as long as they are many: 0.4 s for 10,000.
OBSERVATIONS_READ = 20_000


def suggest(question: Question) -> FoundValues:
    """Values of Optuna's sampler, with a note of how many trials it knew."""
    found = drawn(question)
    if found.note:
        return found
    return FoundValues(found.values, f"by {sum(each.state != 'failed' for each in question.observations)} trials")


def drawn(question: Question) -> FoundValues:
    """Values of Optuna's sampler with the seed of this trial, drawn again until they meet `require`."""
    trials = trials_of(question)
    tries = max(2, min(TRIES, OBSERVATIONS_READ // max(len(trials), 1)))
    for attempt in range(tries):
        sampler = TPESampler(
            seed=question.numpy_seed(attempt),
            n_startup_trials=question.startup_trials,
            multivariate=True,
            # Divides the space into groups of parameters that are active together; one group is the same without.
            group=any(each.only_if for each in question.space.parameters),
            constant_liar=True,
        )
        values = asked(study_of(question, trials, sampler), question.space)
        if question.space.holds(values):
            return FoundValues(values)
    return at_random(question, tries=tries)
