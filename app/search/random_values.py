"""What a method answers when its own draws never meet `require`."""

from app.domain.errors import BadSpec
from app.domain.sweeps.draws import random_values
from app.search.question import FoundValues, Question

ATTEMPTS = 10  # of 1,000 draws each


def at_random(question: Question, *, tries: int) -> FoundValues:
    """Raises BadSpec where random values don't meet `require` either.

    It tries longer than the check of a new sweep: a condition that was met then must not end the sweep now.
    """
    note = f"drawn at random: {tries} draws of {question.name} did not meet `require`"
    for attempt in range(1, ATTEMPTS):
        try:
            return FoundValues(random_values(question.space, question.numpy_seed(attempt)), note)
        except BadSpec:
            continue
    return FoundValues(random_values(question.space, question.seed), note)
