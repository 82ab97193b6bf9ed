"""What every engine offers: answers to many requests at once, each as if it had been the only one."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    # Inspections of records import this module without it.
    from transformers import PreTrainedTokenizerBase

TokenIds = Sequence[int]
STOP, LENGTH = "stop", "length"  # Completion.finish_reason


class Interrupted(Exception):
    """The caller's ``interrupted`` has become true; nothing of the call is to be used."""


@dataclass(frozen=True, kw_only=True)
class SamplingParams:
    """How the next token is chosen; ``temperature`` 0 takes the likeliest one. The same for all requests of a call.

    ``frequency_penalty`` and ``presence_penalty`` count the answer's tokens, as OpenAI's. ``logit_bias`` is by token
    id; ``top_logprobs``: so many of the likeliest tokens are kept for each place; ``says_end``: with them the
    end-of-sequence token that ends the answer.
    """

    max_new_tokens: int
    temperature: float = 0.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    frequency_penalty: float = 0.0
    presence_penalty: float = 0.0
    logit_bias: Mapping[int, float] = field(default_factory=dict)
    stop: tuple[str, ...] = ()
    logprobs: bool = False
    top_logprobs: int = 0
    says_end: bool = False
    response_format: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Prompt:
    """``seed`` decides the samples: a token's random number is a function of seed and position alone."""

    tokens: TokenIds
    seed: int = 0


@dataclass(frozen=True, kw_only=True)
class EndToken:
    """An end-of-sequence token that was chosen: its logarithm, and the likeliest tokens in its place."""

    id: int
    logprob: float
    top: tuple[tuple[int, float], ...]


@dataclass(frozen=True, kw_only=True)
class Completion:
    """``text`` and ``tokens`` are without the stop text and the end-of-sequence token.

    ``logprobs``: one natural logarithm for each of ``tokens``, of the model's distribution before sampling options;
    ``tops``: with `SamplingParams.top_logprobs` the likeliest tokens at each place, best first. ``end``: with
    `SamplingParams.says_end` the end-of-sequence token.
    """

    text: str
    tokens: tuple[int, ...]
    finish_reason: str
    logprobs: tuple[float, ...] | None = None
    tops: tuple[tuple[tuple[int, float], ...], ...] = ()
    end: EndToken | None = None


@dataclass(frozen=True, kw_only=True)
class Continuation:
    """A text that may follow a context, as tokens; an empty context: the whole text is measured."""

    context: TokenIds
    tokens: TokenIds


@dataclass(frozen=True, kw_only=True)
class Likelihood:
    """Sum of the natural logarithms of the continuation's ``tokens`` tokens, and whether each is the likeliest."""

    logprob: float
    is_greedy: bool
    tokens: int


@dataclass(frozen=True, kw_only=True)
class RequestRefused:
    """A request that can't be answered: ``code`` in capitals identifies the reason, ``message`` says the numbers."""

    code: str
    message: str


@dataclass(frozen=True, kw_only=True)
class Scores:
    """What a sequence classifier says: one ``value`` (a reward model), or a probability for each label."""

    value: float | None = None
    label: str = ""
    probabilities: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Pair:
    """Two texts as one for a sequence classifier; ``segments`` says of each token to which it belongs, where the
    tokenizer says so.
    """

    tokens: TokenIds
    segments: TokenIds | None = None


@dataclass(frozen=True, kw_only=True)
class Pooling:
    """How token states become one vector: mean, last, cls, max; none keeps all of them."""

    kind: str = "mean"
    layer: int = -1
    normalize: bool = False


def never() -> bool:
    return False


class Engine(Protocol):
    """A loaded model. Results are in the order of the requests, and do not depend on which others share a call."""

    @property
    def tokenizer(self) -> "PreTrainedTokenizerBase": ...

    @property
    def context_length(self) -> int:
        """Most tokens of prompt and answer together."""

    def generate(
        self, prompts: Sequence[Prompt], sampling: SamplingParams, interrupted: Callable[[], bool] = never
    ) -> list[Completion | RequestRefused]: ...

    def likelihoods(
        self, continuations: Sequence[Continuation], interrupted: Callable[[], bool] = never
    ) -> list[Likelihood | RequestRefused]: ...

    def scores(
        self, texts: Sequence[TokenIds], interrupted: Callable[[], bool] = never
    ) -> list[Scores | RequestRefused]: ...

    def embeddings(
        self, texts: Sequence[TokenIds], pooling: Pooling, interrupted: Callable[[], bool] = never
    ) -> list[NDArray[np.float32] | RequestRefused]:
        """For each text a vector of shape (dimension,), or (tokens, dimension) with pooling none."""

    def close(self) -> None: ...
