"""What is read the short way is read as marshmallow reads it."""

from typing import Any

import pytest
from marshmallow import Schema, ValidationError, fields

from app.http.errors import BadShape
from app.http.request_body import validated
from app.schemas.documents import DocumentSchema
from app.schemas.jobs import SubmitJobSchema
from tests.factories import make_document
from tests.unit.api.test_any_document import FULL

SCHEMA = SubmitJobSchema()
FAULTS: list[dict[str, Any]] = [
    {"name": None},
    {"name": 5},
    {"nmae": "x"},
    {"training_config": None},
    {"training_config": {"framework": {"type": "HF_TRAINER", "tpye": "x"}, "max_retries": -1}},
    {"data_config": {"sources": [{"path": "a"}, {}, {"path": 5, "weight": "1", "filters": [{"op": "eq"}, 7]}]}},
    {"labels": {"a": 5, "": "x"}, "resource_config": [], "output_config": {"checkpoint": {"save_steps": 0}}},
]


def inside(kind: type[Schema]) -> set[type[Schema]]:
    return {kind, *(below for one in kind.__subclasses__() for below in inside(one))}


def by_marshmallow(document: Any) -> Any:
    return Schema.load(SCHEMA, document, partial=())


@pytest.mark.parametrize("document", [make_document(), FULL], ids=["small", "full"])
def test_faultless_documents_are_read_alike(document: dict[str, Any]) -> None:
    read = SCHEMA.load(document)

    assert read == by_marshmallow(document)
    assert list(read) == list(by_marshmallow(document))


@pytest.mark.parametrize("fault", FAULTS, ids=",".join)
def test_every_fault_is_named_as_marshmallow_names_it(fault: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    document = {**make_document(), **fault}
    with pytest.raises(BadShape) as short:
        validated(SCHEMA, document)

    monkeypatch.setattr(DocumentSchema, "_load_fast", _finds_a_fault)
    with pytest.raises(BadShape) as long:
        validated(SCHEMA, document)

    assert short.value.details == long.value.details


def _finds_a_fault(*_: Any) -> None:
    raise ValidationError("")


def test_no_document_has_what_the_short_way_does_not_know() -> None:
    for kind in inside(DocumentSchema):
        schema = kind()
        assert not any(schema._hooks.values()), kind
        for name, field in schema.fields.items():
            assert (field.data_key, field.attribute, field.dump_only) == (None, None, False), (kind, name)
            assert not (isinstance(field, fields.Nested) and field.many), (kind, name)


def test_reading_a_faulty_document_costs_as_much_as_its_depth_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not twice as much for each level, which somebody could make us pay."""
    read: list[type] = []
    by_marshmallow = Schema._do_load

    def counted(schema: Schema, *arguments: Any, **options: Any) -> Any:
        read.append(type(schema))
        return by_marshmallow(schema, *arguments, **options)

    monkeypatch.setattr(Schema, "_do_load", counted)
    faulty = {"path": "a", "filters": [{"column": 5, "op": "eq"}]}
    with pytest.raises(BadShape):
        validated(SCHEMA, make_document(data_config={"sources": [faulty]}))

    assert [kind.__name__ for kind in read].count("FilterSchema") <= 4  # job, data, source, filter
