"""What a document says of a loss that goes wrong, and which documents may say it."""

from typing import Any

import pytest

from app.domain.spec.model import JobDocument, OnDivergence
from tests.builders.submitted import changed, custom, refusal, spec_of

FIELD = "training_config.on_divergence"


def policy_of(document: dict[str, Any]) -> OnDivergence:
    return JobDocument.from_json(document).training_config.on_divergence


@pytest.mark.parametrize(
    ("wanted", "meant"),
    [
        (None, OnDivergence(action="stop")),
        ({}, OnDivergence(action="stop")),
        ({"action": "rollback"}, OnDivergence(action="rollback", learning_rate_factor=0.5, max_rollbacks=2)),
        (
            {"action": "rollback", "learning_rate_factor": 0.1, "max_rollbacks": 10},
            OnDivergence(action="rollback", learning_rate_factor=0.1, max_rollbacks=10),
        ),
    ],
)
def test_what_is_left_out_has_a_default(wanted: dict[str, object] | None, meant: OnDivergence) -> None:
    assert policy_of(changed((FIELD, wanted))) == meant


def test_document_of_an_older_version_says_nothing_of_it() -> None:
    assert policy_of(changed()) == OnDivergence()


def test_script_is_never_rolled_back_from_outside() -> None:
    refused = refusal(custom((FIELD, {"action": "rollback"})))

    assert (refused.field, "custom script" in refused.message) == (f"{FIELD}.action", True)
    assert spec_of(custom((FIELD, {"action": "stop"}))).document.training_config.framework.type == "CUSTOM"
