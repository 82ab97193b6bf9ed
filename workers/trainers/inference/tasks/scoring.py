"""Task score: the number of a reward model, or the label of a classifier with the probabilities of all."""

import math
from collections.abc import Sequence

from workers.trainers.data.shapes import Record
from workers.trainers.inference.engine.interface import Engine, RequestRefused, Scores, TokenIds
from workers.trainers.inference.engine.refusing import not_finite
from workers.trainers.inference.rows import Answer
from workers.trainers.inference.tasks.task import Interrupted
from workers.trainers.inference.tokens import TaskTokens


class Scoring:
    """Column ``score``, or ``label`` and ``probabilities``; a row leaves out the other ones."""

    def __init__(self, engine: Engine, tokens: TaskTokens) -> None:
        self._engine = engine
        self._tokens = tokens

    def request(self, _index: int, record: Record) -> tuple[int, ...]:
        return tuple(self._tokens.judged(record))

    def answers(self, requests: Sequence[TokenIds], interrupted: Interrupted) -> list[Answer | RequestRefused]:
        found = self._engine.scores(requests, interrupted)
        return [_answer(len(request), each) for request, each in zip(requests, found, strict=True)]


def _answer(length: int, found: Scores | RequestRefused) -> Answer | RequestRefused:
    if isinstance(found, RequestRefused):
        return found
    numbers = list(found.probabilities.values()) if found.value is None else [found.value]
    if not all(map(math.isfinite, numbers)):
        return not_finite("score")
    if found.value is not None:
        return Answer(values={"score": found.value}, prompt_tokens=length)
    return Answer(values={"label": found.label, "probabilities": dict(found.probabilities)}, prompt_tokens=length)
