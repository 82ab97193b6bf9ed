"""Which models a job may ask: those that its document names as a service, a judge or a grader's."""

from typing import Any

import pytest

from app.domain.spec.asked_models import asked_models
from app.domain.spec.model import JobDocument

SCORE = {
    "type": "score_model",
    "name": "s",
    "model": "judge-1",
    "input": [{"role": "user", "content": "Rate {{sample.output_text}}"}],
}
CHECK = {"type": "string_check", "name": "c", "input": "{{sample.output_text}}", "reference": "a", "operation": "eq"}
MULTI = {"type": "multi", "name": "m", "calculate_output": "a"}


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        ({}, set()),
        ({"training_config": {"base_model": {"model_id": "org/base"}}}, set()),
        ({"training_config": {"grader": SCORE}}, {"judge-1"}),
        ({"training_config": {"grader": CHECK}}, set()),
        ({"training_config": {"grader": {**MULTI, "graders": {"a": SCORE}}}}, {"judge-1"}),
        (
            {
                "training_config": {
                    "grader": {
                        **MULTI,
                        "calculate_output": "a + b + c",
                        "graders": {"a": SCORE, "b": {**SCORE, "name": "t", "model": "judge-2"}, "c": CHECK},
                    }
                }
            },
            {"judge-1", "judge-2"},
        ),
        ({"inference": {"model": {"service": "support"}}}, {"support"}),
        ({"inference": {"benchmarks": [{"name": "judge", "parameters": {"service": "a"}}]}}, {"a"}),
        ({"inference": {"benchmarks": [{"name": "judge", "parameters": {"model": "ft:b"}}]}}, {"ft:b"}),
        ({"inference": {"benchmarks": [{"name": "exact_match", "parameters": {"model": "b"}}]}}, set()),
        ({"inference": {"benchmarks": [{"name": "reward", "parameters": {"grader": SCORE}}]}}, set()),
        ({"training_config": {"grader": {"model": 7, "graders": [SCORE]}}}, set()),
    ],
)
def test_only_what_the_document_names_may_be_asked(document: dict[str, Any], expected: set[str]) -> None:
    assert asked_models(JobDocument.from_json(document)) == expected
