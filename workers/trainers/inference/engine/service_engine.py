"""An engine that has no model: a service of the project answers in its place, by `RunContext.ask`."""

import base64
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from operator import itemgetter
from typing import Any, NoReturn, TypeVar

import numpy as np
from numpy.typing import NDArray
from transformers import PreTrainedTokenizerBase

from workers.rank.run_context import Ask, NotAnswered, RunSpec
from workers.trainers.answer_statuses import Cause, cause_of
from workers.trainers.asking_in_order import in_order
from workers.trainers.failures import InvalidConfig, TrainingFailure
from workers.trainers.inference.engine.interface import (
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
from workers.trainers.inference.engine.loading import describe
from workers.trainers.inference.engine.refusing import EngineLimits, answer_accepted

AT_A_TIME = 16  # prompts or texts of one request
_SEEDS = 1 << 53  # larger numbers lose precision in other parsers of JSON
_Request = TypeVar("_Request")
_Answer = TypeVar("_Answer")


class ServiceUnavailable(TrainingFailure):
    """The service does not answer; another attempt may find it better."""

    error_type = "NETWORK_ERROR"


class ServiceEngine:
    """See `interface.Engine`; the tokenizer is that of the service's model, as it was when the job was submitted."""

    def __init__(self, spec: RunSpec, service: str, ask: Ask) -> None:
        self._service = service
        self._ask = ask
        self._model = describe(spec)
        self._limits = EngineLimits(self._model.context, self._model.vocabulary)

    @property
    def tokenizer(self) -> PreTrainedTokenizerBase:
        return self._model.tokenizer

    @property
    def context_length(self) -> int:
        return self._limits.context

    def generate(
        self, prompts: Sequence[Prompt], sampling: SamplingParams, interrupted: Callable[[], bool] = never
    ) -> list[Completion | RequestRefused]:
        """Raises Interrupted, InvalidConfig and ServiceUnavailable."""
        if sampling.response_format:
            raise InvalidConfig("task.response_format: a service is asked for completions, which have none")
        # One seed is for a whole request; at temperature 0 it decides nothing.
        size = 1 if sampling.temperature > 0 else AT_A_TIME
        return answer_accepted(
            prompts,
            lambda each: self._limits.refuse(each.tokens, sampling.max_new_tokens),
            lambda accepted: self._all(accepted, size, lambda some: self._completions(some, sampling), interrupted),
        )

    def embeddings(
        self, texts: Sequence[TokenIds], pooling: Pooling, interrupted: Callable[[], bool] = never
    ) -> list[NDArray[np.float32] | RequestRefused]:
        """Pooled as the service does; ``pooling`` is that of its model. Raises Interrupted and ServiceUnavailable."""
        del pooling
        return answer_accepted(
            texts, self._limits.refuse, lambda accepted: self._all(accepted, AT_A_TIME, self._vectors, interrupted)
        )

    def likelihoods(
        self, continuations: Sequence[Continuation], interrupted: Callable[[], bool] = never
    ) -> list[Likelihood | RequestRefused]:
        del continuations, interrupted
        self._refuse("likelihoods")

    def scores(
        self, texts: Sequence[TokenIds], interrupted: Callable[[], bool] = never
    ) -> list[Scores | RequestRefused]:
        del texts, interrupted
        self._refuse("scores")

    def close(self) -> None:
        """Nothing is held."""

    def _refuse(self, what: str) -> NoReturn:
        raise InvalidConfig(f"model.service: the service {self._service} gives no {what}; name a model that is loaded")

    def _all(
        self,
        requests: Sequence[_Request],
        size: int,
        answer: Callable[[Sequence[_Request]], list[_Answer]],
        interrupted: Callable[[], bool],
    ) -> list[_Answer | RequestRefused]:
        """Answers in the order of the requests, which are sent ``size`` at a time and a few of those together."""
        parts = [requests[begin : begin + size] for begin in range(0, len(requests), size)]
        work: list[Callable[[], list[_Answer | RequestRefused]]] = [
            partial(self._answered, part, answer) for part in parts
        ]
        return [each for found in in_order(work, interrupted) for each in found]

    def _answered(
        self, part: Sequence[_Request], answer: Callable[[Sequence[_Request]], list[_Answer]]
    ) -> list[_Answer | RequestRefused]:
        """Of a part that is refused each request is sent alone, so that only the wrong ones are refused."""
        try:
            return [*answer(part)]
        except NotAnswered as error:
            self._raise_of_all(error)
            if len(part) == 1:
                return [RequestRefused(code="REFUSED", message=f"the service {self._service}: {error.message}")]
        return [each for request in part for each in self._answered([request], answer)]

    def _raise_of_all(self, error: NotAnswered) -> None:
        """Raise what the failure means where it is not one of this request alone."""
        cause = cause_of(error.http_status)
        if cause is Cause.RUN_ENDS:
            raise Interrupted from error
        what = f"the service {self._service} does not answer ({error.http_status}): {error.message}"
        if cause is Cause.AWAY:
            raise ServiceUnavailable(what) from error
        if cause is Cause.NO_SUCH_MODEL:
            raise InvalidConfig(f"model.service: {what}") from error

    def _completions(self, prompts: Sequence[Prompt], sampling: SamplingParams) -> list[Completion]:
        body = {
            "prompt": [list(each.tokens) for each in prompts],
            "seed": prompts[0].seed % _SEEDS,
            **_options(sampling),
        }
        answer = self._ask("/v1/completions", {"model": self._service, **body})
        return [self._completion(each, sampling) for each in sorted(answer["choices"], key=itemgetter("index"))]

    def _completion(self, choice: Mapping[str, Any], sampling: SamplingParams) -> Completion:
        logprobs = choice.get("logprobs") or {}
        return Completion(
            text=choice["text"],
            tokens=self._tokens(choice["text"], logprobs.get("tokens", ())),
            finish_reason=choice["finish_reason"],
            logprobs=tuple(logprobs.get("token_logprobs", ())) if sampling.logprobs else None,
        )

    def _tokens(self, text: str, words: Sequence[str]) -> tuple[int, ...]:
        """As many as the service has made; where the text has other ones, those of its words."""
        found = self._ids(text)
        if len(found) == len(words):
            return found
        unknown = self.tokenizer.unk_token_id or 0
        return tuple(next(iter(self._ids(word)), int(unknown)) for word in words)

    def _ids(self, text: str) -> tuple[int, ...]:
        return tuple(int(each) for each in self.tokenizer(text=text, add_special_tokens=False)["input_ids"])

    def _vectors(self, texts: Sequence[TokenIds]) -> list[NDArray[np.float32]]:
        body = {"model": self._service, "input": [list(each) for each in texts], "encoding_format": "base64"}
        data = self._ask("/v1/embeddings", body)["data"]
        return [
            np.frombuffer(base64.b64decode(each["embedding"]), dtype="<f4").astype(np.float32)
            for each in sorted(data, key=itemgetter("index"))
        ]


def _options(sampling: SamplingParams) -> dict[str, Any]:
    """Fields of a request, all of them: a service may have defaults of its own."""
    return {
        "max_tokens": sampling.max_new_tokens,
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "top_k": sampling.top_k,
        "min_p": sampling.min_p,
        "repetition_penalty": sampling.repetition_penalty,
        "frequency_penalty": sampling.frequency_penalty,
        "presence_penalty": sampling.presence_penalty,
        "logprobs": 0,  # with them comes how many tokens an answer has
        **({"stop": list(sampling.stop)} if sampling.stop else {}),
        **(
            {"logit_bias": {str(token): bias for token, bias in sampling.logit_bias.items()}}
            if sampling.logit_bias
            else {}
        ),
    }
