"""Which documents may have a grader, and beside what."""

from typing import Any

import pytest

from tests.builders.submitted import changed, custom, refusal, spec_of

FIELD = "training_config.grader"
GRADER = {"type": "string_check", "input": "{{sample.output_text}}", "reference": "{{item.answer}}", "operation": "eq"}


def rlhf(grader: object = GRADER, *changes: tuple[str, Any], **hyperparameters: str) -> dict[str, Any]:
    return changed(
        ("training_config.training_type", "RLHF"),
        ("training_config.hyperparameters", hyperparameters),
        (FIELD, grader),
        *changes,
    )


@pytest.mark.parametrize("algorithm", ["grpo", "rloo", "ppo"])
def test_policies_are_judged_by_a_grader(algorithm: str) -> None:
    document = spec_of(rlhf(algorithm=algorithm)).document

    assert document.training_config.grader == GRADER
    assert document.to_json()["training_config"]["grader"] == GRADER


def test_document_without_one_stays_as_it_is() -> None:
    assert "grader" not in spec_of(changed()).document.to_json()["training_config"]


@pytest.mark.parametrize(
    ("document", "field", "why"),
    [
        (changed((FIELD, GRADER)), "", "judges completions, which RLHF with algorithm grpo, rloo, ppo makes"),
        (custom((FIELD, GRADER)), "", "judges completions"),
        (rlhf(algorithm="reward"), "", "judges completions"),
        (rlhf(reward="exact"), "", "in place of the hyperparameter reward; leave one of them out"),
        (rlhf(reward_model_id="org/judge"), "", "in place of the hyperparameter reward_model_id"),
        (rlhf({**GRADER, "operation": "is"}), ".operation", "must be one of eq, ne, like, ilike"),
        (
            rlhf({"type": "multi", "graders": {"a": {**GRADER, "input": ""}}, "calculate_output": "a"}),
            ".graders.a.input",
            "must be a text",
        ),
    ],
)
def test_refusal_names_the_field(document: dict[str, Any], field: str, why: str) -> None:
    refused = refusal(document)

    assert (refused.field, why in refused.message) == (FIELD + field, True), refused.message
