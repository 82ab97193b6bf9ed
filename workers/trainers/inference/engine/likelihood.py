"""How likely texts are for a language model."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn import functional
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from workers.trainers.inference.engine.batches import answered, padded, token_budget
from workers.trainers.inference.engine.interface import Continuation, Likelihood, TokenIds


@dataclass(frozen=True)
class MeasuredTokens:
    """Tokens to compute; ``first`` is the first one whose probability counts."""

    tokens: TokenIds
    first: int

    @property
    def read(self) -> TokenIds:
        """What the model reads: nothing follows the last token, so that it takes no place in the context."""
        return self.tokens[:-1] if len(self.tokens) > self.first else self.tokens


def measured(continuation: Continuation, tokenizer: PreTrainedTokenizerBase) -> MeasuredTokens:
    """What is computed for a continuation.

    A text without context follows the beginning-of-sequence token, or else the end-of-sequence token, as in
    EleutherAI's lm-evaluation-harness; if it begins with that token, or there is neither, its first token is its
    context.
    """
    if continuation.context:
        return MeasuredTokens([*continuation.context, *continuation.tokens], len(continuation.context))
    start = tokenizer.bos_token_id if tokenizer.bos_token_id is not None else tokenizer.eos_token_id
    if not continuation.tokens or start is None or continuation.tokens[0] == start:
        return MeasuredTokens(continuation.tokens, 1)
    return MeasuredTokens([start, *continuation.tokens], 1)


class Likelihoods:
    """Computes likelihoods in padded batches."""

    def __init__(self, model: PreTrainedModel, padding: int) -> None:
        self._model: Any = model
        self._padding = padding
        self._budget = token_budget(model, logits=True)
        supports: Any = getattr(model, "_supports_logits_to_keep", None)
        self._keeps = bool(supports and supports())

    def __call__(self, requests: Sequence[MeasuredTokens], interrupted: Callable[[], bool]) -> list[Likelihood]:
        # Answers of one token to the same question differ in nothing that the model reads.
        alike: dict[tuple[int, ...], list[int]] = {}
        for index, each in enumerate(requests):
            alike.setdefault(tuple(each.read), []).append(index)
        reads, places = list(alike), list(alike.values())
        found = answered(
            reads,
            self._budget,
            lambda group: self._batch([[requests[index] for index in places[row]] for row in group]),
            interrupted,
        )
        likelihoods = {
            index: each for row, of in zip(places, found, strict=True) for index, each in zip(row, of, strict=True)
        }
        return [likelihoods[index] for index in range(len(requests))]

    def _batch(self, rows: Sequence[Sequence[MeasuredTokens]]) -> list[list[Likelihood]]:
        """The requests of a row are read alike."""
        ids, mask = padded([row[0].read for row in rows], self._padding, self._model.device)
        # Logits before the first one that counts in any row are not computed.
        first = min(each.first for row in rows for each in row) - 1
        kept = {"logits_to_keep": ids.shape[1] - first} if self._keeps else {}
        logits = self._model(input_ids=ids, attention_mask=mask, use_cache=False, **kept).logits
        start = first if self._keeps else 0
        return [
            [_likelihood(logits[number, each.first - 1 - start : len(each.tokens) - 1 - start], each) for each in row]
            for number, row in enumerate(rows)
        ]


def _likelihood(logits: torch.Tensor, request: MeasuredTokens) -> Likelihood:
    """`logits` precede the tokens that count."""
    tokens = torch.tensor(request.tokens[request.first :], dtype=torch.long, device=logits.device)
    logprobs = functional.log_softmax(logits, dim=-1, dtype=torch.float32)
    chosen = logprobs.gather(1, tokens.unsqueeze(1)).squeeze(1)
    return Likelihood(
        logprob=float(chosen.double().sum()),
        is_greedy=bool((logits.argmax(dim=-1) == tokens).all()),
        tokens=len(tokens),
    )
