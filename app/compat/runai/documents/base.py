"""Field types of Run:ai's request schemas."""

from collections.abc import Mapping
from typing import Any

from marshmallow import ValidationError, fields, validate

from app.compat import quantities
from app.schemas.documents import DocumentSchema
from app.schemas.strict_fields import LARGEST, Flag, Matching, SectionField, Text, Whole, says

Described = Mapping[str, Any]
IGNORED = says("Accepted but ignored; docs/reference/compatibility.md says why")
RETURNED = says("Stored and returned")
MANY = validate.Length(max=100)


def document(name: str, described: Described) -> type[DocumentSchema]:
    """A schema with these fields."""
    schema: Any = DocumentSchema.from_dict(dict(described), name=f"{name}Schema")
    return schema  # type: ignore[no-any-return]


def items(name: str, described: Described, **kwargs: Any) -> fields.List[Any]:
    """A list of objects with these fields and `exclude`."""
    common = {"exclude": Flag(**says("true: the item is ignored"))}
    return fields.List(SectionField(document(name, {**described, **common})), validate=MANY, **kwargs)


def name(**kwargs: Any) -> Text:
    return Text(longest=253, shortest=1, **kwargs)


def path(**kwargs: Any) -> Text:
    return Text(longest=1024, shortest=1, **kwargs)


def port(**kwargs: Any) -> Whole:
    return Whole(1, 65535, **kwargs)


def quantity(**kwargs: Any) -> Matching:
    return Matching(quantities.FORM, quantities.RULE, **kwargs)


class Count(fields.Field[str | int]):
    """A quantity, as a string or an integer."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(metadata={"type": ["string", "integer"], "minimum": 0, "maximum": LARGEST}, **kwargs)

    def _deserialize(self, value: object, *_: Any, **__: Any) -> str | int:
        if type(value) is int and 0 <= value <= LARGEST:
            return value
        if isinstance(value, str) and quantities.FORM.fullmatch(value):
            return value
        raise ValidationError(f"must be a whole number, or {quantities.RULE.removeprefix('must be ')}")


class Identifier(fields.Field[str | int]):
    """A string or an integer."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(
            metadata={"type": ["string", "integer"], "minLength": 1, "maxLength": 128, **kwargs.pop("metadata", {})},
            **kwargs,
        )

    def _deserialize(self, value: object, *_: Any, **__: Any) -> str | int:
        if isinstance(value, bool) or not isinstance(value, str | int) or not 1 <= len(str(value)) <= 128:
            raise ValidationError("must be a number, or a text of 1 to 128 characters")
        return value
