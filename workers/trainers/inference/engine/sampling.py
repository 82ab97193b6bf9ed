"""Chooses the next token of each request: by its own seed and position, never by who else is in the batch."""

import hashlib
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Sequence
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

from workers.trainers.inference.engine.interface import (
    LENGTH,
    STOP,
    Completion,
    EndToken,
    Prompt,
    RequestRefused,
    SamplingParams,
)
from workers.trainers.inference.engine.refusing import NO_CHOICE, NOT_FINITE, no_choice, not_finite
from workers.trainers.inference.engine.stopping import StopTexts
from workers.trainers.inference.engine.structured import Grammar, Matcher

_UNUSED: Any = None  # tokens so far, which these warpers do not read
_RANDOM_BITS = 48  # fewer than a float64 has: the product with a sum of probabilities stays below the sum


Top = tuple[tuple[int, float], ...]  # the likeliest tokens with their logarithms, best first


@dataclass
class RunningRequest:
    """A request that is being answered."""

    prompt: Prompt
    sampler: "Sampler"
    matcher: Matcher | None = None
    tokens: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    tops: list[Top] = field(default_factory=list)
    end: EndToken | None = None
    finish_reason: str = ""  # "": it is not finished


class Sampler:
    """Applies the sampling options of one call, or of one request of many: `choose_each`."""

    def __init__(
        self,
        sampling: SamplingParams,
        tokenizer: PreTrainedTokenizerBase,
        ends: Collection[int],
        grammar: Grammar | None = None,
    ) -> None:
        self._sampling = sampling
        self._ends = ends  # end-of-sequence tokens
        self._stop = StopTexts(sampling.stop, tokenizer)
        self._warpers = _warpers(sampling)
        self._grammar = grammar
        self._bias = tuple(sorted(sampling.logit_bias.items()))

    @property
    def form(self) -> Hashable:
        """What decides how scores become a token: requests whose samplers agree in it can be computed together."""
        of = self._sampling
        distribution = (of.temperature, of.top_k, of.top_p, of.min_p, of.logprobs, of.top_logprobs)
        penalties = (of.repetition_penalty, of.frequency_penalty, of.presence_penalty, self._bias)
        return distribution, penalties, self._grammar

    @property
    def most_tokens(self) -> int:
        """Of an answer."""
        return self._sampling.max_new_tokens

    def begin(self, prompt: Prompt) -> RunningRequest:
        """A request, before its first token."""
        return RunningRequest(prompt, self, self._grammar.matcher() if self._grammar else None)

    def choose(self, running: Sequence[RunningRequest], logits: torch.Tensor) -> torch.Tensor:
        """The next token of each request, which is added to it; row by row of `logits`, in float32."""
        scores = self._processed(running, logits)
        if self._sampling.temperature == 0:
            chosen = scores.argmax(dim=-1)
        else:
            chosen = _drawn(scores, [_uniform(each.prompt.seed, len(each.tokens)) for each in running])
        known = _have_distributions(logits)
        finite = known if scores is logits else known & _have_distributions(scores)
        chosen = chosen.where(finite, 0)  # NaN leads to no token, or to one that does not exist
        logprobs, tops = self._logprobs(logits, chosen)
        rows = zip(running, chosen.tolist(), finite.tolist(), known.tolist(), strict=True)
        for row, (each, token, can_go_on, is_known) in enumerate(rows):
            if not can_go_on:
                each.finish_reason = NO_CHOICE if is_known else NOT_FINITE
                continue
            each.sampler.add(each, token)
            if logprobs and len(each.tokens) > len(each.logprobs):
                each.logprobs.append(logprobs[row])
                each.tops.append(tops[row])
            elif logprobs:
                each.end = EndToken(id=token, logprob=logprobs[row], top=tops[row])
        return chosen

    def completion(self, running: RunningRequest) -> Completion | RequestRefused:
        """The answer of a finished request; Refused where no token could be chosen."""
        if running.finish_reason == NO_CHOICE:
            return no_choice(len(running.tokens) + 1)
        if running.finish_reason == NOT_FINITE:
            return not_finite(f"output for token {len(running.tokens) + 1} of the answer")
        text, tokens = self._stop.cut(running.tokens)
        logprobs = tuple(running.logprobs[: len(tokens)]) if self._sampling.logprobs else None
        tops = tuple(running.tops[: len(tokens)]) if self._sampling.top_logprobs else ()
        end = running.end if self._sampling.says_end else None
        return Completion(
            text=text, tokens=tokens, finish_reason=running.finish_reason, logprobs=logprobs, tops=tops, end=end
        )

    def add(self, running: RunningRequest, token: int) -> None:
        """Add a chosen token to a request of this sampler."""
        if token in self._ends:
            running.finish_reason = STOP
            return
        running.tokens.append(token)
        if running.matcher is not None:
            running.finish_reason = running.matcher.accept(token)
        if self._stop.reached(running.tokens):
            running.finish_reason = STOP
        elif not running.finish_reason and len(running.tokens) >= self._sampling.max_new_tokens:
            running.finish_reason = LENGTH

    def _processed(self, running: Sequence[RunningRequest], logits: torch.Tensor) -> torch.Tensor:
        scores, of = logits, self._sampling
        if self._grammar is not None:
            scores = self._grammar.masked([each.matcher for each in running if each.matcher], scores)
        if of.repetition_penalty != 1:
            scores = _penalized(running, scores, of.repetition_penalty)
        if of.frequency_penalty or of.presence_penalty:
            scores = _made_rarer(running, scores, of.frequency_penalty, of.presence_penalty)
        if self._bias:
            scores = _biased(scores, self._bias)
        for warper in self._warpers:
            scores = warper(_UNUSED, scores)
        return scores

    def _logprobs(self, logits: torch.Tensor, chosen: torch.Tensor) -> tuple[list[float], list[Top]]:
        """Of each row the logarithm of the chosen token, and the likeliest ones; nothing, when not asked for."""
        if not self._sampling.logprobs:
            return [], []
        every = logits.log_softmax(dim=-1)
        found: list[float] = every.gather(1, chosen.unsqueeze(1)).squeeze(1).tolist()
        best = every.topk(min(self._sampling.top_logprobs, every.shape[1]), dim=-1)
        pairs = zip(best.indices.tolist(), best.values.tolist(), strict=True)
        return found, [tuple(zip(*each, strict=True)) for each in pairs]


@dataclass(frozen=True)
class SampledPrompt:
    """A prompt, and how its answer is chosen."""

    prompt: Prompt
    sampler: Sampler

    @property
    def most_tokens(self) -> int:
        """Of prompt and answer together."""
        return len(self.prompt.tokens) + self.sampler.most_tokens

    def begin(self) -> RunningRequest:
        return self.sampler.begin(self.prompt)


Choose = Callable[[Sequence[RunningRequest], torch.Tensor], torch.Tensor]  # as Sampler.choose


def choose_each(running: Sequence[RunningRequest], logits: torch.Tensor) -> torch.Tensor:
    """As `Sampler.choose`, for requests of which each has a sampler of its own."""
    alike: dict[Hashable, list[int]] = {}
    for row, each in enumerate(running):
        alike.setdefault(each.sampler.form, []).append(row)
    if len(alike) == 1:
        return running[0].sampler.choose(running, logits)
    chosen = torch.zeros(len(running), dtype=torch.long, device=logits.device)
    for rows in alike.values():
        group = [running[row] for row in rows]
        chosen[rows] = group[0].sampler.choose(group, logits[rows])
    return chosen


def _have_distributions(scores: torch.Tensor) -> torch.Tensor:
    """Whether tokens of each row have finite log-probabilities. A single score may be minus infinity: none."""
    return scores.logsumexp(dim=-1).isfinite()


def _warpers(sampling: SamplingParams) -> list[LogitsProcessor]:
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


def _penalized(running: Sequence[RunningRequest], scores: torch.Tensor, penalty: float) -> torch.Tensor:
    """Tokens of prompt and answer so far become less likely.

    Keskar et al., CTRL, 2019 (arXiv:1909.05858).
    """
    scores = scores.clone()
    for row, each in enumerate(running):
        seen = torch.tensor(sorted({*each.prompt.tokens, *each.tokens}), device=scores.device)
        found = scores[row, seen]
        scores[row, seen] = torch.where(found < 0, found * penalty, found / penalty)
    return scores


def _made_rarer(
    running: Sequence[RunningRequest], scores: torch.Tensor, frequency: float, presence: float
) -> torch.Tensor:
    """The tokens of the answer so far lose `frequency` for each time they occur, and `presence` once."""
    scores = scores.clone()
    for row, each in enumerate(running):
        if not each.tokens:
            continue
        times = Counter(each.tokens)
        seen = torch.tensor(list(times), device=scores.device)
        counts = torch.tensor(list(times.values()), device=scores.device)
        scores[row, seen] -= counts * frequency + presence
    return scores


def _biased(scores: torch.Tensor, bias: Sequence[tuple[int, float]]) -> torch.Tensor:
    scores = scores.clone()
    tokens, values = zip(*bias, strict=True)
    scores[:, list(tokens)] += torch.tensor(values, dtype=scores.dtype, device=scores.device)
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
