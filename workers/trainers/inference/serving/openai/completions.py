"""Completions of texts or of tokens."""

from collections.abc import Mapping, Sequence
from typing import Any

from workers.trainers.inference.engine.interface import LENGTH
from workers.trainers.inference.serving.openai.asking import TEXT, Asking
from workers.trainers.inference.serving.openai.chance import Chance
from workers.trainers.inference.serving.openai.choices import TextChoice
from workers.trainers.inference.serving.openai.echoes import Echo
from workers.trainers.inference.serving.openai.problems import CONTEXT_LENGTH_EXCEEDED, AnswerProblem
from workers.trainers.inference.serving.openai.sampling_options import sampling_of, seeds_of
from workers.trainers.inference.serving.openai.served_model import ServedModel
from workers.trainers.inference.serving.requests import GenerationRequest

_PROMPT = "prompt"


def completion(body: Mapping[str, Any], adapter: str | None, model: ServedModel, chance: Chance) -> Asking:
    """Each prompt has `n` choices, in the order of the prompts. Raises AnswerProblem."""
    _check(body)
    top = body.get("logprobs")
    texts = None if top is None else model.texts
    echoes_logprobs = bool(body.get("echo")) and top is not None
    requests: list[GenerationRequest] = []
    choices: list[TextChoice] = []
    echoes: list[Echo] = []
    prompt_tokens = 0
    for asked in texts_or_tokens(body[_PROMPT]):
        prompt = _tokens(asked, model)
        new = _answer_length(prompt, body, model)
        sampling = sampling_of(body, model, new=new, top_logprobs=top, says_end=echoes_logprobs)
        echo, begin = _echo(asked, model) if body.get("echo") else "", len(choices)
        for seed in seeds_of(body, chance.seed):
            choices.append(TextChoice(len(choices), echo, texts, finish_reason=None if new else LENGTH))
            if new:
                requests.append(GenerationRequest(prompt=prompt, sampling=sampling, seed=seed, adapter=adapter))
        if echoes_logprobs:
            echoes.append(Echo(prompt=prompt, top=top or 0, adapter=adapter, choices=choices[begin:]))
        prompt_tokens += len(prompt)
    return Asking(
        object=TEXT,
        fingerprint=model.fingerprints.of(adapter),
        param=_PROMPT,
        requests=requests,
        choices=choices,
        prompt_tokens=prompt_tokens,
        body=body,
        chance=chance,
        echoes=echoes,
    )


def texts_or_tokens(given: str | Sequence[Any]) -> list[str | Sequence[int]]:
    """A text, a list of texts, tokens, or a list of lists of tokens; as a list."""
    if isinstance(given, str) or (given and isinstance(given[0], int)):
        return [given]
    return list(given)


def _tokens(asked: str | Sequence[int], model: ServedModel) -> tuple[int, ...]:
    """An empty prompt is the beginning of a text."""
    if not asked:
        begins = (model.tokenizer.bos_token_id, model.tokenizer.eos_token_id)
        return next(((int(each),) for each in begins if each is not None), ())
    return model.prompt({"prompt": asked}, _PROMPT) if isinstance(asked, str) else tuple(asked)


def _answer_length(prompt: Sequence[int], body: Mapping[str, Any], model: ServedModel) -> int:
    """0: only the prompt is wanted. Raises AnswerProblem."""
    if not body.get("echo") or body.get("max_tokens") != 0:
        return model.answer_length(len(prompt), body)
    if len(prompt) > model.context:
        raise AnswerProblem(
            f"the context holds {model.context} tokens, but the prompt has {len(prompt)}; shorten it",
            param=_PROMPT,
            code=CONTEXT_LENGTH_EXCEEDED,
        )
    return 0


def _check(body: Mapping[str, Any]) -> None:
    best_of = body.get("best_of")
    if best_of is not None and best_of != (body.get("n") or 1):
        raise AnswerProblem("best_of must equal n: all answers that are made are returned", param="best_of")
    if body.get("suffix"):
        raise AnswerProblem("text can't be inserted before a suffix; leave suffix out", param="suffix")


def _echo(asked: str | Sequence[int], model: ServedModel) -> str:
    return asked if isinstance(asked, str) else str(model.tokenizer.decode(list(asked)))
