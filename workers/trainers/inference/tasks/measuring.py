"""Task loglikelihood: how likely the model holds a completion after its prompt, or a whole text."""

import math
from collections.abc import Sequence

from workers.trainers.data.shapes import Record
from workers.trainers.inference.engine.interface import Continuation, Engine, Likelihood, RequestRefused
from workers.trainers.inference.engine.refusing import not_finite
from workers.trainers.inference.rows import Answer
from workers.trainers.inference.tasks.task import Interrupted
from workers.trainers.inference.tokens import TaskTokens


class Measuring:
    """``logprob`` is the sum over ``tokens`` tokens, ``perplexity`` the inverse of their geometric mean."""

    def __init__(self, engine: Engine, tokens: TaskTokens) -> None:
        self._engine = engine
        self._tokens = tokens

    def request(self, _index: int, record: Record) -> Continuation:
        return self._tokens.continuation(record)

    def answers(self, requests: Sequence[Continuation], interrupted: Interrupted) -> list[Answer | RequestRefused]:
        found = self._engine.likelihoods(requests, interrupted)
        return [_answer(request, each) for request, each in zip(requests, found, strict=True)]


def _answer(request: Continuation, found: Likelihood | RequestRefused) -> Answer | RequestRefused:
    if isinstance(found, RequestRefused):
        return found
    perplexity = _perplexity(found)
    if not math.isfinite(perplexity):
        return not_finite("log-likelihood")
    values = {"logprob": found.logprob, "tokens": found.tokens, "perplexity": perplexity, "is_greedy": found.is_greedy}
    prompt_tokens = len(request.context) + len(request.tokens)
    return Answer(values=values, prompt_tokens=prompt_tokens)


def _perplexity(found: Likelihood) -> float:
    try:
        return math.exp(-found.logprob / max(1, found.tokens))
    except OverflowError:
        return math.inf
