"""An engine without a model: each answer is a function of its request alone, so tests need no weights."""

from collections.abc import Callable, Sequence
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast

from workers.rank.run_context import RunSpec
from workers.trainers.inference.engine.interface import (
    STOP,
    Completion,
    Continuation,
    Interrupted,
    Likelihood,
    Pooling,
    Prompt,
    RequestRefused,
    SamplingParams,
    Scores,
    TokenIds,
    never,
)

Request = TypeVar("Request")
Answer = TypeVar("Answer")

WORDS = ("<s>", "</s>", "?", *(f"w{number}" for number in range(50)))
DIMENSION = 4
NAME = "STAND_IN"
LINE = "tests.unit.workers.trainers.inference.stand_in_engine:StandInEngine"
LABELS = "labels"  # of training_config.base_model.model_kwargs: the model is a classifier


def word_tokenizer() -> PreTrainedTokenizerBase:
    """Each word is a token."""
    whole = Tokenizer(models.WordLevel({word: number for number, word in enumerate(WORDS)}, unk_token="?"))
    whole.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer: PreTrainedTokenizerBase = PreTrainedTokenizerFast(
        tokenizer_object=whole, unk_token="?", bos_token="<s>", eos_token="</s>", pad_token="</s>"
    )
    return tokenizer


class StandInEngine:
    """Refuses requests of more than `context_length` tokens."""

    context_length = 12

    def __init__(self, spec: RunSpec) -> None:
        self.tokenizer = word_tokenizer()
        self._labels = spec.training_config.get("base_model", {}).get("model_kwargs", {}).get(LABELS)

    def generate(
        self, prompts: Sequence[Prompt], sampling: SamplingParams, interrupted: Callable[[], bool] = never
    ) -> list[Completion | RequestRefused]:
        def answer(prompt: Prompt) -> Completion | RequestRefused:
            if refused := self._refused(prompt.tokens, sampling.max_new_tokens):
                return refused
            tokens = (sum(prompt.tokens) % 50 + 3, prompt.seed % 50 + 3)
            logprobs = (-0.5, -0.25) if sampling.logprobs else None
            return Completion(
                text=" ".join(WORDS[each] for each in tokens), tokens=tokens, finish_reason=STOP, logprobs=logprobs
            )

        return self._answers(prompts, answer, interrupted)

    def likelihoods(
        self, continuations: Sequence[Continuation], interrupted: Callable[[], bool] = never
    ) -> list[Likelihood | RequestRefused]:
        def answer(asked: Continuation) -> Likelihood | RequestRefused:
            refused = self._refused([*asked.context, *asked.tokens])
            size = len(asked.tokens)
            return refused or Likelihood(logprob=-1.0 * size, is_greedy=not asked.context, tokens=size)

        return self._answers(continuations, answer, interrupted)

    def scores(
        self, texts: Sequence[TokenIds], interrupted: Callable[[], bool] = never
    ) -> list[Scores | RequestRefused]:
        def answer(tokens: TokenIds) -> Scores | RequestRefused:
            if self._labels:
                return Scores(label=self._labels[0], probabilities=dict.fromkeys(self._labels, 1 / len(self._labels)))
            return self._refused(tokens) or Scores(value=float(sum(tokens)))

        return self._answers(texts, answer, interrupted)

    def embeddings(
        self, texts: Sequence[TokenIds], pooling: Pooling, interrupted: Callable[[], bool] = never
    ) -> list[NDArray[np.float32] | RequestRefused]:
        def answer(tokens: TokenIds) -> NDArray[np.float32] | RequestRefused:
            if refused := self._refused(tokens):
                return refused
            states = np.outer(np.array(tokens, np.float32), np.arange(1, DIMENSION + 1, dtype=np.float32))
            found: NDArray[np.float32] = states if pooling.kind == "none" else states.mean(axis=0)
            return found

        return self._answers(texts, answer, interrupted)

    def close(self) -> None:
        """There is nothing to free."""

    def _refused(self, tokens: TokenIds, new: int = 0) -> RequestRefused | None:
        if len(tokens) + new <= self.context_length:
            return None
        return RequestRefused(code="CONTEXT_TOO_LONG", message=f"{len(tokens)} and {new} exceed {self.context_length}")

    @staticmethod
    def _answers(
        requests: Sequence[Request], answer: Callable[[Request], Answer], interrupted: Callable[[], bool]
    ) -> list[Answer]:
        if interrupted():
            raise Interrupted
        return [answer(request) for request in requests]
