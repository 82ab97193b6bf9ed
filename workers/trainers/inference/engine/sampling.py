"""Chooses the next token of each request: by its own seed and position, never by who else is in the batch."""

import hashlib
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from transformers import (
    LogitsProcessor,
    MinPLogitsWarper,
    PreTrainedTokenizerBase,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from workers.trainers.inference.engine.interface import LENGTH, STOP, Completion, Prompt, Refused, Sampling
from workers.trainers.inference.engine.refusing import NOT_FINITE, not_finite
from workers.trainers.inference.engine.stopping import StopTexts
from workers.trainers.inference.engine.structured import Grammar, Matcher

_UNUSED: Any = None  # tokens so far, which these warpers do not read
_RANDOM_BITS = 48  # fewer than a float64 has: the product with a sum of probabilities stays below the sum


@dataclass
class Running:
    """A request that is being answered."""

    prompt: Prompt
    matcher: Matcher | None = None
    tokens: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    finish_reason: str = ""  # "": it is not finished


class Sampler:
    """Applies the sampling options of one call."""

    def __init__(
        self,
        sampling: Sampling,
        tokenizer: PreTrainedTokenizerBase,
        ends: Collection[int],
        grammar: Grammar | None = None,
    ) -> None:
        self._sampling = sampling
        self._ends = ends  # end-of-sequence tokens
        self._stop = StopTexts(sampling.stop, tokenizer)
        self._warpers = _warpers(sampling)
        self._grammar = grammar

    def begin(self, prompt: Prompt) -> Running:
        """A request, before its first token."""
        return Running(prompt, self._grammar.matcher() if self._grammar else None)

    def choose(self, running: Sequence[Running], logits: torch.Tensor) -> torch.Tensor:
        """The next token of each request, which is added to it; row by row of `logits`, in float32."""
        scores = self._processed(running, logits)
        if self._sampling.temperature == 0:
            chosen = scores.argmax(dim=-1)
        else:
            chosen = _drawn(scores, [_uniform(each.prompt.seed, len(each.tokens)) for each in running])
        finite = _have_distributions(logits, scores)
        chosen = chosen.where(finite, 0)  # NaN leads to no token, or to one that does not exist
        logprobs = self._logprobs(logits, chosen)
        for row, (each, token, can_go_on) in enumerate(zip(running, chosen.tolist(), finite.tolist(), strict=True)):
            if can_go_on:
                self._add(each, token, logprobs[row] if logprobs else None)
            else:
                each.finish_reason = NOT_FINITE
        return chosen

    def completion(self, running: Running) -> Completion | Refused:
        """The answer of a finished request; Refused when the model's numbers for it were not finite."""
        if running.finish_reason == NOT_FINITE:
            return not_finite(f"output for token {len(running.tokens) + 1} of the answer")
        text, tokens = self._stop.cut(running.tokens)
        logprobs = tuple(running.logprobs[: len(tokens)]) if self._sampling.logprobs else None
        return Completion(text=text, tokens=tokens, finish_reason=running.finish_reason, logprobs=logprobs)

    def _processed(self, running: Sequence[Running], logits: torch.Tensor) -> torch.Tensor:
        scores = logits
        if self._grammar is not None:
            scores = self._grammar.masked([each.matcher for each in running if each.matcher], scores)
        if self._sampling.repetition_penalty != 1:
            scores = _penalized(running, scores, self._sampling.repetition_penalty)
        for warper in self._warpers:
            scores = warper(_UNUSED, scores)
        return scores

    def _logprobs(self, logits: torch.Tensor, chosen: torch.Tensor) -> list[float] | None:
        if not self._sampling.logprobs:
            return None
        found: list[float] = logits.log_softmax(dim=-1).gather(1, chosen.unsqueeze(1)).squeeze(1).tolist()
        return found

    def _add(self, running: Running, token: int, logprob: float | None) -> None:
        if token in self._ends:
            running.finish_reason = STOP
            return
        running.tokens.append(token)
        if logprob is not None:
            running.logprobs.append(logprob)
        if running.matcher is not None:
            running.finish_reason = running.matcher.accept(token)
        if self._stop.reached(running.tokens):
            running.finish_reason = STOP
        elif not running.finish_reason and len(running.tokens) >= self._sampling.max_new_tokens:
            running.finish_reason = LENGTH


def _have_distributions(logits: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
    """Whether tokens of each row have finite log-probabilities, before and after sampling options. A single logit may
    be minus infinity: no probability.
    """
    sums = logits.logsumexp(dim=-1)
    return (sums if scores is logits else sums + scores.logsumexp(dim=-1)).isfinite()


def _warpers(sampling: Sampling) -> list[LogitsProcessor]:
    """In the order in which transformers applies them; they do nothing for the likeliest token."""
    if sampling.temperature == 0:
        return []
    found: list[LogitsProcessor] = []
    if sampling.temperature != 1:
        found.append(TemperatureLogitsWarper(float(sampling.temperature)))
    if sampling.top_k:
        found.append(TopKLogitsWarper(sampling.top_k))
    if sampling.top_p < 1:
        found.append(TopPLogitsWarper(sampling.top_p))
    if sampling.min_p > 0:
        found.append(MinPLogitsWarper(sampling.min_p))
    return found


def _penalized(running: Sequence[Running], scores: torch.Tensor, penalty: float) -> torch.Tensor:
    """Tokens of prompt and answer so far become less likely.

    Keskar et al., CTRL, 2019 (arXiv:1909.05858).
    """
    scores = scores.clone()
    for row, each in enumerate(running):
        seen = torch.tensor(sorted({*each.prompt.tokens, *each.tokens}), device=scores.device)
        found = scores[row, seen]
        scores[row, seen] = torch.where(found < 0, found * penalty, found / penalty)
    return scores


def _uniform(seed: int, position: int) -> float:
    """A random number in [0, 1) that belongs to this position of this seed."""
    digest = hashlib.blake2b(f"{seed}:{position}".encode(), digest_size=8).digest()
    return (int.from_bytes(digest, "big") >> (64 - _RANDOM_BITS)) / (1 << _RANDOM_BITS)


def _drawn(scores: torch.Tensor, uniforms: Sequence[float]) -> torch.Tensor:
    """By the inverse of the cumulative distribution, in float64: rounding moves its borders by less than a logit's."""
    cumulative = scores.double().softmax(dim=-1).cumsum(dim=-1)
    target = torch.tensor(uniforms, dtype=torch.float64, device=scores.device).unsqueeze(1) * cumulative[:, -1:]
    return torch.searchsorted(cumulative, target, right=True).squeeze(1)
