"""OpenAI's graders as rewards and graders of a job document, and back; what they gave, in OpenAI's words."""

from typing import Any

import pytest
from openai.types.fine_tuning.alpha import GraderRunResponse

from app.compat.openai.fine_tuning.grader_answers import PYTHON_SERVER, run_of
from app.compat.openai.fine_tuning.graders import GRADER, REWARD, grader_of, native_of, param_of
from app.domain.errors import InvalidRequest
from app.domain.graders.grading import KINDS, MODEL_SERVER, Graded, GradeError, TokenUsage

STRING_CHECK = {
    "type": "string_check",
    "name": "right",
    "input": "{{ sample.output_text }}",
    "reference": "{{item.answer}}",
    "operation": "eq",
}
PYTHON = {"type": "python", "name": "code", "source": "def grade(sample, item):\n    return 1.0"}


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
    assert native_of({**STRING_CHECK, **changes}) == (REWARD, reward)


@pytest.mark.parametrize(
    "grader",
    [
        PYTHON,
        {**STRING_CHECK, "input": "{{item.question}}"},
        {**STRING_CHECK, "operation": "like"},
        {**STRING_CHECK, "operation": "ne"},
        {**STRING_CHECK, "reference": "a {{item.answer}}"},
        {**STRING_CHECK, "reference": "a" * 4096},
        {"type": "multi", "name": "both", "graders": {"one": PYTHON, "two": STRING_CHECK}, "calculate_output": "one"},
    ],
)
def test_graders_that_no_reward_means_are_kept(grader: dict[str, Any]) -> None:
    path, value = native_of(grader)

    assert (path, value) == (GRADER, grader)
    assert grader_of({"grader": value, "hyperparameters": {"reward": "exact"}}) == grader


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"type": "none"}, ".type"),
        ({"operation": "is"}, ".operation"),
        ({"reference": ""}, ".reference"),
        ({"reference": "{{answer}}"}, ".reference"),
        ({"weight": "1"}, ".weight"),
        ({"type": "multi", "graders": {}}, ".graders"),
    ],
)
def test_objects_that_are_no_graders_are_refused(changes: dict[str, Any], field: str) -> None:
    grader = {**STRING_CHECK, **changes}
    with pytest.raises(InvalidRequest) as raised:
        native_of(grader if grader["type"] != "multi" else {"name": "all", **changes})

    assert raised.value.field == f"method.reinforcement.grader{field}"


def test_reward_of_another_client_is_a_grader_where_one_means_it() -> None:
    for reward in ("exact:solution", None):
        grader = grader_of({"hyperparameters": {"reward": reward} if reward else {}})
        assert native_of(grader or {}) == (REWARD, reward or "exact:answer")
    assert grader_of({"hyperparameters": {"reward": "length:64"}}) is None


@pytest.mark.parametrize(
    ("message", "param"),
    [
        ("grader: the records have no column answer; they have id", "method.reinforcement.grader"),
        ("out of memory", None),
    ],
)
def test_failures_that_are_about_the_grader_name_it(message: str, param: str | None) -> None:
    assert param_of(message) == param


@pytest.mark.parametrize("kind", [*KINDS, PYTHON_SERVER])
def test_every_error_has_its_place(kind: str) -> None:
    graded = Graded(0.0, {}, (GradeError("code", kind, "why"),))

    found = run_of(PYTHON, graded, 0.5)

    errors = found["metadata"]["errors"]
    assert [name for name, value in errors.items() if value is True] == [kind]
    assert found["trainyard"]["errors"] == [{"grader": "code", "kind": kind, "message": "why"}]
    assert GraderRunResponse.model_validate(found).metadata.errors.to_dict().keys() == errors.keys()


def test_tokens_are_counted_by_model() -> None:
    usage = {"judge": TokenUsage(prompt_tokens=7, completion_tokens=2), "critic": TokenUsage(prompt_tokens=1)}

    found = run_of({"type": "multi"}, Graded(0.5, {"a": 0.5, "b": None}, (), usage), 0.5)

    assert found["metadata"]["token_usage"] == 10
    assert found["metadata"]["sampled_model_name"] is None
    assert found["metadata"]["name"] == "multi"
    assert found["sub_rewards"] == {"a": 0.5, "b": None}
    assert found["model_grader_token_usage_per_model"]["judge"]["total_tokens"] == 9
    failed = run_of(PYTHON, Graded(0.0, {}, (GradeError("code", MODEL_SERVER, "gone"),)), 0.5)
    assert failed["metadata"]["errors"]["model_grader_server_error_details"] == "gone"
