"""Completions of texts or of tokens."""

from collections.abc import Mapping, Sequence
from typing import Any

from workers.trainers.inference.serving.openai.asking import TEXT, Asking
from workers.trainers.inference.serving.openai.chance import Chance
from workers.trainers.inference.serving.openai.choices import TextChoice
from workers.trainers.inference.serving.openai.problems import Problem
from workers.trainers.inference.serving.openai.sampling_options import sampling_of, seeds_of
from workers.trainers.inference.serving.openai.served_model import ServedModel
from workers.trainers.inference.serving.requests import GenerationRequest

_PROMPT = "prompt"


def completion(body: Mapping[str, Any], adapter: str | None, model: ServedModel, chance: Chance) -> Asking:
    """Each prompt has `n` choices, in the order of the prompts. Raises Problem."""
    _check(body)
    texts = None if body.get("logprobs") is None else model.texts
    requests: list[GenerationRequest] = []
    choices: list[TextChoice] = []
    prompt_tokens = 0
    for asked in texts_or_tokens(body[_PROMPT]):
        prompt = _tokens(asked, model)
        new = model.answer_length(len(prompt), body)
        sampling = sampling_of(body, model, new=new, top_logprobs=body.get("logprobs"))
        echo = _echo(asked, model) if body.get("echo") else ""
        for seed in seeds_of(body, chance.seed):
            choices.append(TextChoice(len(requests), echo, texts))
            requests.append(GenerationRequest(prompt=prompt, sampling=sampling, seed=seed, adapter=adapter))
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


def _check(body: Mapping[str, Any]) -> None:
    best_of = body.get("best_of")
    if best_of is not None and best_of != (body.get("n") or 1):
        raise Problem("best_of must equal n: all answers that are made are returned", param="best_of")
    if body.get("echo") and body.get("logprobs") is not None:
        raise Problem("echo returns no log-probabilities of the prompt; leave out echo or logprobs", param="echo")
    if body.get("suffix"):
        raise Problem("text can't be inserted before a suffix; leave suffix out", param="suffix")


def _echo(asked: str | Sequence[int], model: ServedModel) -> str:
    return asked if isinstance(asked, str) else str(model.tokenizer.decode(list(asked)))
