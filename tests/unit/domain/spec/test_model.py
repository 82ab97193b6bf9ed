"""The typed job document: what is stored comes back byte by byte, and what it leaves out has a default."""

import json
from collections.abc import Iterator
from dataclasses import FrozenInstanceError
from pathlib import Path
from typing import Any, get_args, get_type_hints

import pytest
from marshmallow import Schema
from marshmallow.fields import List, Nested

from app.domain.spec.model import CheckpointConfig, DataConfig, Evaluation, JobDocument, ResourceConfig, Source
from app.domain.spec.section import Section
from app.schemas.jobs import SubmitJobSchema
from tests.builders.example_jobs import DOCUMENTS, SOMEWHERE, filled_in
from tests.builders.submitted import GOOD, changed, spec_of
from tests.unit.api.test_any_document import FULL


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.stem)
def test_example_is_stored_as_it_was_given(path: Path) -> None:
    document = filled_in(path, SOMEWHERE)

    assert json.dumps(JobDocument.from_json(document).to_json()) == json.dumps(document)


@pytest.mark.parametrize("document", [{}, GOOD, FULL], ids=["empty", "good", "full"])
def test_document_is_stored_as_it_was_given(document: dict[str, Any]) -> None:
    assert json.dumps(JobDocument.from_json(document).to_json()) == json.dumps(document)


def test_stored_document_is_read_back_equal() -> None:
    stored = spec_of(GOOD).document

    assert JobDocument.from_json(stored.to_json()) == stored


def test_what_an_old_document_leaves_out_has_a_default() -> None:
    document = JobDocument.from_json({"training_config": {"training_type": "SFT"}, "unknown": 1})

    assert (document.resource_config.gpu_count, document.data_config.batch_size) == (1, 8)
    assert document.training_config.framework.config == {}
    assert document.to_json() == {"training_config": {"training_type": "SFT"}}


def test_null_stands_for_a_default() -> None:
    assert ResourceConfig.from_json({"node_count": None, "gpu_type": None}) == ResourceConfig()


@pytest.mark.parametrize("stored", [[], "x", 5, None])
def test_section_that_is_no_object_is_an_error(stored: Any) -> None:
    with pytest.raises(TypeError, match="ResourceConfig is not a JSON object"):
        ResourceConfig.from_json(stored)


def test_nothing_can_be_assigned() -> None:
    with pytest.raises(FrozenInstanceError):
        JobDocument().name = "x"  # type: ignore[misc]


def test_changed_field_is_given_and_the_original_is_not_changed() -> None:
    data = DataConfig.from_json({"seed": 1})

    assert data.changed(batch_size=2).to_json() == {"seed": 1, "batch_size": 2}
    assert data.filled("batch_size", "seed").to_json() == {"batch_size": 8, "seed": 1}
    assert data.changed(seed=2).without("seed") == DataConfig()
    assert data.to_json() == {"seed": 1}


def test_name_that_is_no_field_is_an_error() -> None:
    with pytest.raises(TypeError, match="DataConfig has no field sed"):
        DataConfig().changed(sed=1)
    with pytest.raises(TypeError, match="DataConfig has no field sed"):
        DataConfig().filled("sed")


@pytest.mark.parametrize("section", ["evaluation", "on_divergence", "base_model"])
def test_optional_section_is_an_object_too(section: str) -> None:
    with pytest.raises(TypeError, match="is not a JSON object"):
        JobDocument.from_json({"training_config": {section: "x"}})


def test_secrets_are_not_printed() -> None:
    secret = "s3cr3t"
    output = {"hub_token": secret, "credentials": {"token": secret}}
    framework = {"custom_code_credentials": {"token": secret}}
    document = {"training_config": {"environment": {"TOKEN": secret}, "framework": framework}, "output_config": output}

    assert secret not in repr(JobDocument.from_json(document))


def test_caller_may_change_the_json() -> None:
    document = JobDocument.from_json(changed(("training_config.environment", {"A": "b"})))

    document.to_json()["training_config"]["environment"]["A"] = "c"

    assert document.training_config.environment == {"A": "b"}


def test_nested_sections_are_typed() -> None:
    document = JobDocument.from_json(
        {
            "training_config": {"evaluation": {"strategy": "steps"}},
            "data_config": {"sources": [{"path": "a", "columns": ["x"]}]},
            "output_config": {"checkpoint": {"save_steps": 7}},
        }
    )

    assert document.training_config.evaluation == Evaluation(strategy="steps")
    assert document.data_config.sources == (Source(path="a", columns=("x",)),)
    assert document.output_config.checkpoint == CheckpointConfig(save_steps=7)


def test_model_has_the_fields_of_the_schema_and_no_others() -> None:
    set_by_the_platform = {"output_config.checkpoint.save_epochs"}
    dataset = "training_config.evaluations.benchmarks.dataset"  # a path in place of an object is taken as well

    fields = {dataset if name.startswith(dataset) else name for name in _of_model(JobDocument)}

    of_trainings = {name for name in fields if name != "kind" and not name.startswith("inference.")}
    assert of_trainings == set(_of_schema(SubmitJobSchema())) | set_by_the_platform


def _of_schema(schema: Schema, above: str = "") -> list[str]:
    found = []
    for name, field in schema.fields.items():
        inner = field.inner if isinstance(field, List) else field
        found += _of_schema(inner.schema, f"{above}{name}.") if isinstance(inner, Nested) else [f"{above}{name}"]
    return found


def _of_model(section: type[Section], above: str = "") -> list[str]:
    found = []
    for name, hint in get_type_hints(section).items():
        if name != "given":
            inner = next(_sections_of(hint), None)
            found += _of_model(inner, f"{above}{name}.") if inner is not None else [f"{above}{name}"]
    return found


def _sections_of(hint: Any) -> Iterator[type[Section]]:
    """The section that a field may hold: itself, in a tuple, or None instead."""
    if isinstance(hint, type) and issubclass(hint, Section):
        yield hint
    for part in get_args(hint):
        yield from _sections_of(part)
