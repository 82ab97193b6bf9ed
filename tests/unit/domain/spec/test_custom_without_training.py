"""A CUSTOM job needs neither a training method nor a model nor data; every other framework needs all three."""

from typing import Any

import pytest
from marshmallow import ValidationError

from app.domain.errors import NotSupportedYet
from app.domain.spec.job_spec import from_document
from app.domain.spec.locations.paths import ReadingRules
from app.schemas.jobs import SubmitJobSchema

SCHEMA = SubmitJobSchema()
SCRIPT = {"type": "CUSTOM", "custom_script_path": "/srv/code/train.py"}


def document(framework: dict[str, Any], **training: Any) -> dict[str, Any]:
    return {
        "name": "mine",
        "training_config": {"framework": framework, **training},
        "resource_config": {"gpu_count": 1},
    }


def stored(values: dict[str, Any]) -> dict[str, Any]:
    return from_document(SCHEMA.load(values), ReadingRules(roots=("/srv",))).document.to_json()


def test_a_script_alone_is_a_job() -> None:
    found = stored(document(SCRIPT))

    assert found["training_config"]["training_type"] == "CUSTOM"
    assert found["training_config"]["base_model"] == {"model_id": "none"}
    assert found["data_config"]["sources"] == []


def test_what_is_stored_can_be_submitted_again() -> None:
    found = stored(document(SCRIPT))

    assert stored(found) == found


def test_what_a_script_says_of_its_training_stays() -> None:
    values = document(SCRIPT, training_type="DPO", base_model={"model_id": "/srv/models/tiny"})
    values["data_config"] = {"sources": [{"path": "/srv/data/train.jsonl"}]}

    found = stored(values)

    assert found["training_config"]["training_type"] == "DPO"
    assert found["training_config"]["base_model"] == {"model_id": "/srv/models/tiny"}
    assert found["data_config"]["sources"] == [{"path": "/srv/data/train.jsonl", "format": "jsonl"}]


@pytest.mark.parametrize("empty", [{}, {"training_type": None, "base_model": None}])
@pytest.mark.parametrize("framework", [{"type": "HF_TRAINER"}, {"type": "FSDP"}])
def test_a_built_in_trainer_needs_all_three(framework: dict[str, Any], empty: dict[str, Any]) -> None:
    missing = ["Missing data for required field."]

    with pytest.raises(ValidationError) as refused:
        SCHEMA.load(document(framework, **empty))

    assert refused.value.messages == {
        "training_config": {"training_type": missing, "base_model": missing},
        "data_config": missing,
    }


def test_what_was_refused_is_not_missing_as_well() -> None:
    values = document({"type": "HF_TRAINER"}, training_type="SFTT", base_model={"model_id": "/srv/models/tiny"})

    with pytest.raises(ValidationError) as refused:
        SCHEMA.load({**values, "data_config": {"sources": []}})

    assert list(refused.value.messages) == ["training_config"]
    (said,) = refused.value.normalized_messages()["training_config"]["training_type"]
    assert "must be one of SFT" in said


def test_a_job_without_framework_is_told_all_that_it_lacks() -> None:
    with pytest.raises(ValidationError) as refused:
        SCHEMA.load({"name": "mine", "training_config": {}, "resource_config": {"gpu_count": 1}})

    assert set(refused.value.normalized_messages()["training_config"]) == {"framework", "training_type", "base_model"}


def test_a_built_in_trainer_has_no_training_type_of_scripts() -> None:
    values = document({"type": "HF_TRAINER"}, training_type="CUSTOM", base_model={"model_id": "/srv/models/tiny"})
    values["data_config"] = {"sources": [{"path": "/srv/data/train.jsonl"}]}

    with pytest.raises(NotSupportedYet, match="HF_TRAINER does not train CUSTOM: say framework"):
        stored(values)
