"""Request documents: null stands for an omitted field, every fault is named, and a job document is typed."""

from typing import Any

import pytest

from app.domain.spec.model import JobDocument
from app.http.errors import BadShape
from app.http.request_body import validated
from app.schemas.jobs import SubmitJobSchema
from tests.builders.factories import make_document
from tests.unit.api.test_any_document import FULL

SCHEMA = SubmitJobSchema()
MISSING = "Missing data for required field."
FAULTS: list[tuple[dict[str, Any], list[str]]] = [
    ({"name": None}, ["name"]),
    ({"name": 5}, ["name"]),
    ({"nmae": "x"}, ["nmae"]),
    ({"training_config": None}, ["training_config"]),
    (
        {"training_config": {"framework": {"type": "HF_TRAINER", "tpye": "x"}, "max_retries": -1}},
        [
            "training_config.training_type",
            "training_config.base_model",
            "training_config.framework.tpye",
            "training_config.max_retries",
        ],
    ),
    (
        {"data_config": {"sources": [{"path": "a"}, {}, {"path": 5, "weight": "1", "filters": [{"op": "eq"}, 7]}]}},
        [
            "data_config.sources.1.path",
            "data_config.sources.2.path",
            "data_config.sources.2.filters.0.column",
            "data_config.sources.2.filters.1",
            "data_config.sources.2.weight",
        ],
    ),
    (
        {"labels": {"a": 5, "": "x"}, "resource_config": [], "output_config": {"checkpoint": {"save_steps": 0}}},
        ["labels.a", "labels.", "resource_config", "output_config.checkpoint.save_steps"],
    ),
]


@pytest.mark.parametrize("document", [make_document(), FULL], ids=["small", "full"])
def test_document_is_typed(document: dict[str, Any]) -> None:
    read = SCHEMA.load(document)

    assert isinstance(read, JobDocument)
    assert read.training_config.training_type == document["training_config"]["training_type"]
    assert read.to_json().items() >= {"name": document["name"]}.items()


@pytest.mark.parametrize(("fault", "fields"), FAULTS, ids=str)
def test_every_fault_is_named(fault: dict[str, Any], fields: list[str]) -> None:
    with pytest.raises(BadShape) as refused:
        validated(SCHEMA, {**make_document(), **fault})

    assert sorted(field for field, _ in refused.value.details) == sorted(fields)


def test_null_stands_for_an_omitted_field() -> None:
    document = make_document()
    nulls = make_document(
        training_config={"evaluation": None, "max_retries": None},
        resource_config={"gpu_count": None, "node_affinity": None},
        output_config=None,
    )
    document["resource_config"].pop("gpu_count")

    assert SCHEMA.load(nulls).to_json() == SCHEMA.load(document).to_json()


def test_user_that_is_root_is_refused_with_the_way_out() -> None:
    with pytest.raises(BadShape) as refused:
        validated(SCHEMA, make_document(resource_config={"user": {"uid": 0}}))

    ((field, message),) = refused.value.details
    assert field == "resource_config.user.uid"
    assert "no job runs as root; leave it out" in message
