"""Scrambled Sobol points by scipy: the n-th trial that is suggested has the n-th point of the sweep's sequence.

With `require` it has the n-th of those points that meet it, so no two trials share one. Where 1,000 points in a row
do not, the values are drawn at random.
"""

from itertools import count

from scipy.stats.qmc import Sobol

from app.domain.sweeps.parameters import Value
from app.search.question import FoundValues, Question
from app.search.random_values import at_random
from app.search.unit_cube import values_at, varying

MOST_MISSES = 1000
_AT_ONCE = 256


def suggest(question: Question) -> FoundValues:
    space = question.space
    dimensions = len(varying(space))
    if not dimensions:
        return FoundValues(values_at(space, []))
    sequence = Sobol(dimensions, scramble=True, rng=question.sweep_seed("sobol"))
    if not space.conditions:
        if question.place:  # scipy can't go forward by nothing
            sequence.fast_forward(question.place)
        return FoundValues(values_at(space, sequence.random(1)[0].tolist()))
    values = _meeting(question, sequence)
    return at_random(question, tries=MOST_MISSES) if values is None else FoundValues(values)


def _meeting(question: Question, sequence: Sobol) -> dict[str, Value] | None:
    """The values of the question's place among the points that meet `require`; None after too many that do not."""
    found = misses = 0
    for place in count():
        if place % _AT_ONCE == 0:
            points = sequence.random(_AT_ONCE).tolist()
        values = values_at(question.space, points[place % _AT_ONCE])
        if not question.space.holds(values):
            misses += 1
            if misses == MOST_MISSES:
                return None
            continue
        if found == question.place:
            return values
        found, misses = found + 1, 0
    return None
