"""OpenAI's graders as rewards, and back."""

import pytest

from app.compat.openai.fine_tuning.graders import grader_of, reward_of
from app.domain.errors import InvalidRequest

STRING_CHECK = {
    "type": "string_check",
    "name": "right",
    "input": "{{ sample.output_text }}",
    "reference": "{{item.answer}}",
    "operation": "eq",
}


@pytest.mark.parametrize(
    ("changes", "reward"),
    [
        ({}, "exact:answer"),
        ({"reference": "4.5"}, r"regex:\A\s*4\.5\s*\z"),
        ({"reference": "so_é [1]", "operation": "like"}, r"regex:so_é \[1\]"),
        ({"reference": "so", "operation": "ilike"}, "regex:(?i)so"),
    ],
)
def test_string_checks_are_rewards(changes: dict[str, str], reward: str) -> None:
    assert reward_of({**STRING_CHECK, **changes}) == reward


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"type": "none"}, "type"),
        ({"input": "{{item.question}}"}, "input"),
        ({"operation": "like"}, "reference"),
        ({"reference": "so", "operation": "ne"}, "operation"),
        ({"operation": "ne"}, "operation"),
        ({"reference": "a" * 4096}, "reference"),
        ({"operation": "is"}, "operation"),
        ({"reference": ""}, "reference"),
        ({"weight": "1"}, "weight"),
    ],
)
def test_graders_that_no_reward_means_are_refused(changes: dict[str, str], field: str) -> None:
    with pytest.raises(InvalidRequest) as raised:
        reward_of({**STRING_CHECK, **changes})

    assert raised.value.field == f"method.reinforcement.grader.{field}"


def test_reward_of_another_client_is_a_grader_where_one_means_it() -> None:
    assert reward_of(grader_of("exact:solution") or {}) == "exact:solution"
    assert grader_of("length:64") is None
