"""protobuf messages → marshmallow schemas of their JSON, for the OpenAPI description."""

from functools import cache
from typing import Any

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message
from marshmallow import Schema, fields

from app.schemas.documents import DocumentSchema
from app.schemas.strict_fields import SOMETIMES, AsStored

_F = FieldDescriptor
_TIMESTAMP = "google.protobuf.Timestamp"
# JSON that is written, by https://protobuf.dev/programming-guides/json.
_WRITTEN: dict[int, dict[str, Any]] = {
    _F.CPPTYPE_STRING: {"type": "string"},
    _F.CPPTYPE_BOOL: {"type": "boolean"},
    _F.CPPTYPE_INT32: {"type": "integer", "minimum": -(2**31), "maximum": 2**31 - 1},
    _F.CPPTYPE_INT64: {"type": "string", "pattern": "^-?[0-9]{1,19}$"},
    _F.CPPTYPE_DOUBLE: {"anyOf": [{"type": "number"}, {"enum": ["NaN", "Infinity", "-Infinity"]}]},
}
# JSON that is read: also numbers as strings, and enum values as numbers.
_READ: dict[int, dict[str, Any]] = {
    **_WRITTEN,
    _F.CPPTYPE_INT32: {"type": ["integer", "string"], "minimum": -(2**31), "maximum": 2**31 - 1},
    _F.CPPTYPE_INT64: {"type": ["integer", "string"]},
    _F.CPPTYPE_DOUBLE: {"type": ["number", "string"]},
}


def shape_of(message: type[Message]) -> type[Schema]:
    """The schema of a response, which has all fields except unset messages."""
    return _answer(message.DESCRIPTOR)


def body_of(message: type[Message]) -> type[Schema]:
    """The schema of a request, whose fields are optional. Each call returns a new class."""
    descriptor: Any = message.DESCRIPTOR  # protobuf has two implementations
    described: dict[str, Any] = {field.name: AsStored(_value(field, _READ)) for field in descriptor.fields}
    return DocumentSchema.from_dict(described, name=f"{descriptor.name}BodySchema")


@cache
def _answer(message: Descriptor) -> type[Schema]:
    return Schema.from_dict({field.name: _field(field) for field in message.fields}, name=f"{message.name}Schema")


def _field(field: FieldDescriptor) -> fields.Field[Any]:
    kind = field.message_type
    if kind is not None and kind.GetOptions().map_entry:
        return AsStored({"type": "object", "additionalProperties": _value(kind.fields_by_name["value"], _WRITTEN)})
    if kind is not None and kind.full_name != _TIMESTAMP:
        nested = fields.Nested(_answer(kind), metadata={SOMETIMES: not field.is_repeated})
        return fields.List(nested) if field.is_repeated else nested
    return AsStored({**_value(field, _WRITTEN), SOMETIMES: kind is not None})


def _value(field: FieldDescriptor, plain: dict[int, dict[str, Any]]) -> dict[str, Any]:
    if field.message_type is not None:
        return {"type": "string", "format": "date-time"}
    if field.enum_type is not None:
        words = [value.name for value in field.enum_type.values]
        return {"type": "string", "enum": words} if plain is _WRITTEN else {"anyOf": [{"enum": words}, _READ_WORD]}
    if field.type == _F.TYPE_BYTES:
        return {"type": "string", "contentEncoding": "base64"}
    return plain[field.cpp_type]


_READ_WORD = {"type": ["integer", "null"], "description": "its number"}
