"""Bodies of requests in jobs: what is wrong is named by its field."""

from typing import Any

import pytest

from app.domain.spec.inference import CHAT_COMPLETIONS
from workers.trainers.inference.serving.openai.problems import AnswerProblem
from workers.trainers.inference.tasks.request_bodies import check_body

BODY = {"model": "tiny", "messages": [{"role": "user", "content": "Return the name"}]}


@pytest.mark.parametrize(
    ("field", "value", "expected"),
    [
        ("logit_bias", {"5": 10**400}, "a number from -100 to 100 for the ID of a token"),
        ("logit_bias", {"5": float("nan")}, "a number from -100 to 100"),
        ("logit_bias", {"5": -101}, "a number from -100 to 100"),
        ("logit_bias", {"5": True}, "a number from -100 to 100"),
        ("logit_bias", {"9" * 5000: 1}, "a number from -100 to 100"),
        ("temperature", 10**400, "a number from 0 to 2"),
        ("top_p", 0, "a number above 0, up to 1"),
        ("top_p", 0.0, "a number above 0, up to 1"),
        ("top_p", 1.5, "a number above 0, up to 1"),
        ("top_p", "much", "a number above 0, up to 1"),
    ],
)
def test_values_that_a_service_refuses_are_refused(field: str, value: object, expected: str) -> None:
    with pytest.raises(AnswerProblem) as refused:
        check_body(CHAT_COMPLETIONS, {**BODY, field: value})

    assert (refused.value.param, expected in refused.value.message) == (field, True), refused.value.message


@pytest.mark.parametrize("values", [{"logit_bias": {"5": -100, "0": 0.5}}, {"top_p": 1}, {"top_p": 0.01}])
def test_values_that_a_service_takes_are_taken(values: dict[str, Any]) -> None:
    check_body(CHAT_COMPLETIONS, {**BODY, **values})
