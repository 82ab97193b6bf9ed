"""The parts of a request's body that the engine reads: jobs get bodies that no gateway has checked."""

from collections.abc import Callable, Mapping
from typing import Any

from app.domain.spec.inference import CHAT_COMPLETIONS, COMPLETIONS, EMBEDDINGS
from app.domain.spec.rules.inference import (
    HOTTEST,
    LARGEST_PENALTY,
    MOST_ANSWER_TOKENS,
    MOST_ANSWERS,
    MOST_STOPS,
    MOST_TOP_K,
)
from workers.trainers.inference.serving.openai.problems import AnswerProblem

Body = Mapping[str, Any]
_Test = Callable[[object], bool]
_Rule = tuple[_Test, str]  # of a value, and what it has to be
_MOST_TOP = 20  # likeliest tokens
_LARGEST_BIAS = 100
_LONGEST_ID = 10  # digits of a token's id


def check_body(endpoint: str, body: Body) -> None:
    """Raises AnswerProblem naming the field."""
    needed, rules = _FIELDS[endpoint]
    for name in ("model", needed):
        if body.get(name) is None:
            raise AnswerProblem(f"the body has no {name}", param=name)
    if body.get("stream"):
        raise AnswerProblem("a batch has no streams; leave stream out", param="stream")
    for name, (fits, expected) in rules.items():
        value = body.get(name)
        if value is not None and not fits(value):
            raise AnswerProblem(f"{name} must be {expected}", param=name)


def _number(least: float, most: float) -> _Rule:
    def fits(value: object) -> bool:
        return isinstance(value, int | float) and not isinstance(value, bool) and least <= value <= most

    return fits, f"a number from {least:g} to {most:g}"


def _is_top_p(value: object) -> bool:
    return _number(0, 1)[0](value) and value != 0


def _whole(least: int, most: int) -> _Rule:
    def fits(value: object) -> bool:
        return isinstance(value, int) and not isinstance(value, bool) and least <= value <= most

    return fits, f"a whole number from {least} to {most}"


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _are_texts_or_tokens(value: object) -> bool:
    if isinstance(value, str):
        return True
    if not isinstance(value, list) or not value:
        return False
    return any(all(map(fits, value)) for fits in (_is_text, _is_whole, _are_tokens))


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _are_tokens(value: object) -> bool:
    return isinstance(value, list) and all(map(_is_whole, value))


def _are_stops(value: object) -> bool:
    return isinstance(value, str) or (
        isinstance(value, list) and len(value) <= MOST_STOPS and all(map(_is_text, value))
    )


def _are_biases(value: object) -> bool:
    fits = _number(-_LARGEST_BIAS, _LARGEST_BIAS)[0]
    return isinstance(value, dict) and all(
        name.isascii() and name.isdigit() and len(name) <= _LONGEST_ID and fits(bias) for name, bias in value.items()
    )


def _are_messages(value: object) -> bool:
    return isinstance(value, list) and bool(value) and all(map(_is_message, value))


def _is_message(value: object) -> bool:
    if not isinstance(value, dict) or not isinstance(value.get("role"), str):
        return False
    content = value.get("content")
    return (
        content is None
        or isinstance(content, str)
        or (isinstance(content, list) and all(isinstance(part, dict) for part in content))
    )


_TEXTS_OR_TOKENS: _Rule = (_are_texts_or_tokens, "a text, a list of texts, tokens, or a list of lists of tokens")
_GENERATION: dict[str, _Rule] = {
    "n": _whole(1, MOST_ANSWERS),
    "max_tokens": _whole(1, MOST_ANSWER_TOKENS),
    "temperature": _number(0, HOTTEST),
    "top_p": (_is_top_p, "a number above 0, up to 1"),
    "top_k": _whole(0, MOST_TOP_K),
    "min_p": _number(0, 1),
    "repetition_penalty": _number(0, LARGEST_PENALTY),
    "frequency_penalty": _number(-2, 2),
    "presence_penalty": _number(-2, 2),
    "seed": (_is_whole, "a whole number"),
    "stop": (_are_stops, f"a text, or a list of up to {MOST_STOPS} texts"),
    "logit_bias": (_are_biases, f"an object: a number from -{_LARGEST_BIAS} to {_LARGEST_BIAS} for the ID of a token"),
}
# By endpoint: the field that a body needs, and the rules of those that it may have.
_FIELDS: Mapping[str, tuple[str, Mapping[str, _Rule]]] = {
    CHAT_COMPLETIONS: (
        "messages",
        {
            **_GENERATION,
            "messages": (_are_messages, "a list of messages, each with a role and content"),
            "max_completion_tokens": _whole(1, MOST_ANSWER_TOKENS),
            "top_logprobs": _whole(0, _MOST_TOP),
        },
    ),
    COMPLETIONS: (
        "prompt",
        {
            **_GENERATION,
            "prompt": _TEXTS_OR_TOKENS,
            "logprobs": _whole(0, _MOST_TOP),
            "max_tokens": _whole(0, MOST_ANSWER_TOKENS),
        },
    ),
    EMBEDDINGS: ("input", {"input": _TEXTS_OR_TOKENS, "dimensions": _whole(1, 1 << 20)}),
}
