"""The schema of documents, which asks only some of its fields, finds what marshmallow's own finds."""

import itertools
from typing import Any

import pytest
from marshmallow import Schema, ValidationError, fields, post_load, validates_schema

from app.schemas.documents import DocumentSchema
from app.schemas.strict_fields import Text, Whole

FIELDS: dict[str, Any] = {
    "needed": Text(required=True),
    "counted": Whole(1, 9, load_default=3),
    "plain": Text(longest=3),
    "named": Whole(data_key="other-name"),
    "listed": fields.List(Text(), load_default=list),
}
VALUES: dict[str, tuple[Any, ...]] = {
    "needed": ("a", 7),
    "counted": (5, 10),
    "plain": ("abc", "abcd"),
    "other-name": (1, "one"),
    "named": (1,),
    "listed": (["a"], "a"),
    "unknown": (1,),
}
DOCUMENTS = [
    {name: chance for name, chance in zip(VALUES, chosen, strict=True) if chance is not ...}
    for chosen in itertools.product(*((..., *values) for values in VALUES.values()))
]


def found_by(schema: Schema, document: Any) -> tuple[Any, Any]:
    """What was loaded, in its order, or what was refused."""
    try:
        return list(schema.load(document).items()), None
    except ValidationError as error:
        return None, {name: _named(said) for name, said in error.normalized_messages().items()}


def _named(said: Any) -> Any:
    """An unknown field is one, whichever our schemas say was meant."""
    return ["Unknown field."] if str(said[0]).startswith("unknown field") else said


def test_every_document_is_loaded_or_refused_as_by_marshmallow() -> None:
    ours, marshmallows = DocumentSchema.from_dict(FIELDS)(), Schema.from_dict(FIELDS)()

    for document in DOCUMENTS:
        assert found_by(ours, document) == found_by(marshmallows, document)


@pytest.mark.parametrize("document", [None, 1, "text", [], [{"needed": "a"}]])
def test_what_is_no_object_is_refused_as_by_marshmallow(document: object) -> None:
    ours, marshmallows = DocumentSchema.from_dict(FIELDS)(), Schema.from_dict(FIELDS)()

    assert found_by(ours, document) == found_by(marshmallows, document)


def test_errors_in_a_list_of_documents_are_numbered_as_by_marshmallow() -> None:
    ours, marshmallows = DocumentSchema.from_dict(FIELDS)(), Schema.from_dict(FIELDS)()
    documents: list[dict[str, Any]] = [{"needed": "a"}, {"needed": 7}, {}, {"needed": "a", "counted": 10}]

    with pytest.raises(ValidationError) as expected:
        marshmallows.load(documents, many=True)
    with pytest.raises(ValidationError) as found:
        ours.load(documents, many=True)

    assert list(expected.value.normalized_messages()) == [1, 2, 3]
    assert found.value.normalized_messages() == expected.value.normalized_messages()


def test_field_that_is_absent_and_has_no_default_is_not_asked() -> None:
    asked: list[str | None] = []

    class Noting(fields.String):
        def deserialize(self, *arguments: Any, **more: Any) -> Any:
            asked.append(self.name)
            return super().deserialize(*arguments, **more)

    class Document(DocumentSchema):
        given, absent, needed = Noting(), Noting(), Noting(required=True)

    Document().load({"given": "a", "needed": "b"})

    assert asked == ["given", "needed"]


def test_hooks_of_a_document_schema_are_called() -> None:
    class Document(DocumentSchema):
        first = Whole()

        @validates_schema
        def _even(self, values: dict[str, Any], **_: Any) -> None:
            if values.get("first", 0) % 2:
                raise ValidationError("must be even", "first")

        @post_load
        def _made(self, values: dict[str, Any], **_: Any) -> tuple[str, dict[str, Any]]:
            return "made", values

    assert Document().load({"first": None}) == ("made", {})
    with pytest.raises(ValidationError, match="must be even"):
        Document().load({"first": 3})
