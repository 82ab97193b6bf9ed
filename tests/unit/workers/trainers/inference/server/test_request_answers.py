"""What a request of a job can be blamed for, and what not."""

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from app.domain.spec.inference import CHAT_COMPLETIONS
from tests.builders.engine_specs import engine_spec, loaded_engine
from workers.trainers.failures import InvalidConfig
from workers.trainers.inference.serving.openai.chance import derived
from workers.trainers.inference.serving.openai.problems import AnswerProblem
from workers.trainers.inference.serving.openai.served_model import served_model
from workers.trainers.inference.tasks.request_answers import TextAnswers

BODY = {"model": "tiny", "messages": [{"role": "user", "content": "Return the name"}], "max_tokens": 4}
FORMAT = {"type": "json_object"}


class UnableEngine:
    """One that makes no sampler."""

    def __init__(self, engine: Any) -> None:
        self._engine = engine

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    def sampler(self, *_: object, **__: object) -> None:
        raise InvalidConfig("there is no sampler")


@pytest.fixture
def unable(llama: Path) -> Callable[..., Any]:
    """Prepares a body with an engine that makes no sampler."""
    spec = engine_spec(llama)
    model = served_model(spec, loaded_engine(spec))
    answers = TextAnswers(dataclasses.replace(model, engine=UnableEngine(model.engine)), CHAT_COMPLETIONS)  # type: ignore[arg-type]
    return lambda **values: answers.prepare({**BODY, **values}, derived("key", 1))


def test_a_format_that_cannot_be_applied_is_named(unable: Callable[..., Any]) -> None:
    with pytest.raises(AnswerProblem) as refused:
        unable(response_format=FORMAT)

    assert refused.value.param == "response_format"


def test_a_request_without_a_format_is_not_blamed_for_one(unable: Callable[..., Any]) -> None:
    with pytest.raises(InvalidConfig, match="there is no sampler"):
        unable()
