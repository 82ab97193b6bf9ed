"""Answers to the requests of a shard: all of them in one call of the engine."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from app.domain.spec.inference import CHAT_COMPLETIONS
from workers.trainers.failures import InvalidConfig
from workers.trainers.inference.engine.embedding import Vector
from workers.trainers.inference.engine.interface import Completion, Prompt, RequestRefused, TokenIds
from workers.trainers.inference.engine.interface import Interrupted as Stopped
from workers.trainers.inference.engine.sampling import SampledPrompt, Sampler
from workers.trainers.inference.serving.admission import limits_of, refuse
from workers.trainers.inference.serving.openai.asking import Asking
from workers.trainers.inference.serving.openai.chance import Chance
from workers.trainers.inference.serving.openai.chat import chat
from workers.trainers.inference.serving.openai.completions import completion
from workers.trainers.inference.serving.openai.embeddings import embeddings_answer, wanted_texts
from workers.trainers.inference.serving.openai.problems import AnswerProblem, refusal
from workers.trainers.inference.serving.openai.served_model import ServedModel
from workers.trainers.inference.serving.requests import Delta, ServedSampling, TokenInfo
from workers.trainers.inference.tasks.request_bodies import Body
from workers.trainers.inference.tasks.task import Interrupted


@dataclass(frozen=True, kw_only=True)
class AnsweredRequest:
    """The body of a response, and what it took."""

    body: dict[str, Any]
    prompt_tokens: int
    completion_tokens: int = 0


@dataclass(frozen=True)
class TextPrompts:
    """``prompts`` belong to the choices of ``asking`` in their order."""

    asking: Asking
    prompts: Sequence[SampledPrompt]


@dataclass(frozen=True)
class Passages:
    """The texts of which a request wants vectors."""

    body: Body
    texts: Sequence[TokenIds]


class TextAnswers:
    """Chat completions and completions."""

    def __init__(self, model: ServedModel, endpoint: str) -> None:
        self._model = model
        self._ask = chat if endpoint == CHAT_COMPLETIONS else completion
        self._limits = limits_of(model.engine, model.serving.max_context)

    def prepare(self, body: Body, chance: Chance) -> TextPrompts:
        asking = self._ask(body, None, self._model, chance)
        for request in asking.requests:
            if refused := refuse(request, self._limits):
                raise refusal(refused, asking.param)
        samplers: dict[int, Sampler] = {}  # by identity: the answers to one prompt share their options
        prompts = []
        for request in asking.requests:
            key = id(request.sampling)
            if key not in samplers:
                samplers[key] = self._sampler(request.sampling)
            prompts.append(SampledPrompt(Prompt(tokens=request.prompt, seed=request.seed), samplers[key]))
        return TextPrompts(asking, prompts)

    def answered(
        self, prepared: Sequence[TextPrompts], interrupted: Interrupted
    ) -> list[AnsweredRequest | AnswerProblem]:
        prompts = [prompt for each in prepared for prompt in each.prompts]
        found = iter(self._model.engine.generate_each(prompts, interrupted))
        return [self._answer(each.asking, [next(found) for _ in each.prompts], interrupted) for each in prepared]

    def _answer(
        self, asking: Asking, found: Sequence[Completion | RequestRefused], interrupted: Interrupted
    ) -> AnsweredRequest | AnswerProblem:
        try:
            for echo in asking.echoes:
                reading = echo.reading(self._model)
                while not reading.is_done:
                    if interrupted():
                        raise Stopped
                    reading.advance()
                echo.add(reading)
        except AnswerProblem as problem:
            return problem
        return _of_texts(asking, found)

    def _sampler(self, sampling: ServedSampling) -> Sampler:
        # As where requests share their steps, so that a service's answer is the same.
        sampler = partial(self._model.engine.sampler, sampling, is_shared=True)
        if not sampling.response_format:
            return sampler()
        try:
            return sampler()
        except InvalidConfig as error:
            raise AnswerProblem(str(error), param="response_format") from error


class VectorAnswers:
    """Embeddings."""

    def __init__(self, model: ServedModel) -> None:
        self._model = model

    def prepare(self, body: Body, chance: Chance) -> Passages:
        del chance  # vectors have neither names nor samples
        return Passages(body, wanted_texts(body, self._model))

    def answered(self, prepared: Sequence[Passages], interrupted: Interrupted) -> list[AnsweredRequest | AnswerProblem]:
        texts = [text for each in prepared for text in each.texts]
        found = iter(self._model.engine.embeddings(texts, self._model.pooling, interrupted))
        return [_of_passages(each, [next(found) for _ in each.texts]) for each in prepared]


def _of_texts(asking: Asking, found: Sequence[Completion | RequestRefused]) -> AnsweredRequest | AnswerProblem:
    tokens = 0
    for choice, each in zip(asking.choices if asking.requests else (), found, strict=True):
        if isinstance(each, RequestRefused):
            return refusal(each, asking.param)
        described = tuple(_described(each))
        tokens += len(described)
        delta = Delta(text=each.text, tokens=described, finish_reason=each.finish_reason)
        for _ in choice.add(delta):
            pass  # what a stream would send
    return AnsweredRequest(body=asking.whole(tokens), prompt_tokens=asking.prompt_tokens, completion_tokens=tokens)


def _described(found: Completion) -> Iterator[TokenInfo]:
    for place, token in enumerate(found.tokens):
        logprob = found.logprobs[place] if found.logprobs else None
        yield TokenInfo(id=token, logprob=logprob, top=found.tops[place] if found.tops else ())
    if found.end is not None:
        yield TokenInfo(id=found.end.id, logprob=found.end.logprob, top=found.end.top)


def _of_passages(passages: Passages, found: Sequence[Vector | RequestRefused]) -> AnsweredRequest | AnswerProblem:
    try:
        body = embeddings_answer(passages.body, passages.texts, found)
    except AnswerProblem as problem:
        return problem
    return AnsweredRequest(body=body, prompt_tokens=sum(map(len, passages.texts)))
