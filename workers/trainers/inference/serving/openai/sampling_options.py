"""Sampling options of a request, with the service's defaults for those that it leaves out."""

from collections.abc import Iterator, Mapping
from typing import Any

from app.domain.spec.response_formats import JSON_SCHEMA, BadResponseFormat, check_response_format
from app.domain.spec.rules.inference import LEAST_PENALTY, LEAST_TEMPERATURE
from workers.trainers.inference.seeds import sample_seed
from workers.trainers.inference.serving.openai.problems import AnswerProblem
from workers.trainers.inference.serving.openai.served_model import ServedModel
from workers.trainers.inference.serving.requests import ServedSampling

_FORMAT = "response_format"
_DEFAULTS: Mapping[str, Any] = {"temperature": 1.0, "top_p": 1.0, "top_k": 0, "min_p": 0.0, "repetition_penalty": 1.0}


def sampling_of(
    body: Mapping[str, Any],
    model: ServedModel,
    *,
    new: int,
    top_logprobs: int | None,
    says_end: bool = False,
    response_format: Mapping[str, Any] | None = None,
) -> ServedSampling:
    """``top_logprobs`` None: no log-probabilities are wanted. Raises AnswerProblem."""
    defaults = {**_DEFAULTS, **model.serving.defaults}
    chosen = {name: defaults[name] if body.get(name) is None else body[name] for name in _DEFAULTS}
    _check_range(chosen)
    return ServedSampling(
        max_new_tokens=new,
        **chosen,
        stop=_stops(body),
        logprobs=top_logprobs is not None,
        top_logprobs=top_logprobs or 0,
        says_end=says_end,
        frequency_penalty=body.get("frequency_penalty") or 0.0,
        presence_penalty=body.get("presence_penalty") or 0.0,
        logit_bias=_bias(body, model.vocabulary),
        response_format=response_format or {},
    )


def seeds_of(body: Mapping[str, Any], unnamed: int) -> Iterator[int]:
    """The seeds of a prompt's answers, by ``unnamed`` where the request names none."""
    named = body.get("seed")
    seed = unnamed if named is None else named
    return (sample_seed(seed, 0, sample) for sample in range(body.get("n") or 1))


def response_format_of(body: Mapping[str, Any]) -> dict[str, Any]:
    """OpenAI's forms as the engine knows them; empty for any text. Raises AnswerProblem."""
    asked = body.get(_FORMAT) or {"type": "text"}
    if asked["type"] == "text":
        return {}
    if asked["type"] == "json_object":
        return {"type": JSON_SCHEMA, "schema": {"type": "object"}}
    found = {"type": JSON_SCHEMA, "schema": asked.get("json_schema", {}).get("schema", {"type": "object"})}
    try:
        check_response_format(found)
    except BadResponseFormat as error:
        raise AnswerProblem(str(error), param=f"{_FORMAT}.json_schema{error.part}") from error
    return found


def _check_range(chosen: Mapping[str, Any]) -> None:
    """Logits divided by less may not be finite any more."""
    if 0 < chosen["temperature"] < LEAST_TEMPERATURE:
        raise AnswerProblem(
            f"temperature is 0, which takes the likeliest token, or at least {LEAST_TEMPERATURE}", param="temperature"
        )
    if chosen["repetition_penalty"] < LEAST_PENALTY:
        raise AnswerProblem(f"repetition_penalty is at least {LEAST_PENALTY}; 1 is none", param="repetition_penalty")


def _stops(body: Mapping[str, Any]) -> tuple[str, ...]:
    stop = body.get("stop") or ()
    return (stop,) if isinstance(stop, str) else tuple(stop)


def _bias(body: Mapping[str, Any], vocabulary: int) -> dict[int, float]:
    found = {int(token): float(bias) for token, bias in (body.get("logit_bias") or {}).items()}
    if unknown := next((token for token in found if not 0 <= token < vocabulary), None):
        raise AnswerProblem(
            f"logit_bias names token {unknown}, but the model has {vocabulary} tokens", param="logit_bias"
        )
    return found
