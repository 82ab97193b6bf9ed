"""Converts marshmallow schemas to JSON Schema that accepts exactly what the API accepts."""

from typing import Any

from apispec import APISpec
from apispec.ext.marshmallow import MarshmallowPlugin
from apispec.ext.marshmallow.openapi import OpenAPIConverter
from marshmallow import Schema, fields

from app.schemas.documents import DocumentSchema
from app.schemas.queries import ListQuerySchema, QueryTexts
from app.schemas.strict_fields import SOMETIMES

_NULL = {"type": "null"}
_SEPARATE_PARAMETER = "labels"  # sent as `labels.KEY=VALUE`, and described separately


class _StrictConverter(OpenAPIConverter):
    """Optional document fields accept null; responses have every field that is not marked optional."""

    bodies: frozenset[type[Schema]] = frozenset()

    def schema2jsonschema(self, schema: Schema) -> dict[str, Any]:
        found: dict[str, Any] = super().schema2jsonschema(schema)  # type: ignore[no-untyped-call]  # apispec has none there
        if isinstance(schema, DocumentSchema):
            required = found.get("required", ())
            found["properties"] = {k: v if k in required else _or_null(v) for k, v in found["properties"].items()}
            found |= schema.conditions
        elif found["properties"] and type(schema) not in self.bodies:
            sometimes = {name for name, field in schema.fields.items() if field.metadata.get(SOMETIMES)}
            found["required"] = sorted(set(found["properties"]) - sometimes)
        return found

    def schema2parameters(self, schema: Schema, *, location: str, **more: Any) -> list[dict[str, Any]]:
        found = super().schema2parameters(schema, location=location, **more)
        texts = {name for name, field in schema.fields.items() if isinstance(field, QueryTexts)}
        return [
            _query_parameter(one, repeated=one["name"] in texts) for one in found if one["name"] != _SEPARATE_PARAMETER
        ]

    def field2length(self, field: fields.Field[Any], **more: Any) -> dict[str, Any]:
        found: dict[str, Any] = super().field2length(field, **more)
        if isinstance(field, fields.Dict):
            return {name.replace("Length", "Properties"): bound for name, bound in found.items()}
        return {name: bound for name, bound in found.items() if bound}

    def field2pattern(self, field: fields.Field[Any], **more: Any) -> dict[str, Any]:
        # JSON Schema patterns have no \Z; without the multiline flag, $ is equivalent there.
        return {
            name: f"^{pattern.removesuffix(chr(92) + 'Z')}$"
            for name, pattern in super().field2pattern(field, **more).items()
        }

    def dict2properties(self, field: fields.Field[Any], **more: Any) -> dict[str, Any]:
        found: dict[str, Any] = super().dict2properties(field, **more)
        if isinstance(field, fields.Dict) and field.key_field is not None:
            found["propertyNames"] = self.field2pattern(field.key_field)
        return found

    def constant2properties(self, field: fields.Field[Any], **_: Any) -> dict[str, Any]:
        return {"const": field.constant} if isinstance(field, fields.Constant) else {}

    def init_attribute_functions(self) -> None:
        super().init_attribute_functions()  # type: ignore[no-untyped-call]  # the same
        self.attribute_functions.append(self.constant2properties)


class StrictSchemas(MarshmallowPlugin):
    """The apispec plugin with the strict converter and schema names; ``bodies`` are the request body schemas."""

    Converter = _StrictConverter

    def __init__(self, bodies: frozenset[type[Schema]]) -> None:
        super().__init__(schema_name_resolver=_schema_name)  # type: ignore[arg-type] # it also takes False, its types say not so
        self._bodies = bodies

    def init_spec(self, spec: APISpec) -> None:
        super().init_spec(spec)
        if isinstance(self.converter, _StrictConverter):
            self.converter.bodies = self._bodies


def _or_null(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema, or null, which means that the field is omitted."""
    if "$ref" in schema:
        described = {name: value for name, value in schema.items() if name != "$ref"}
        return {**described, "anyOf": [{"$ref": schema["$ref"]}, _NULL]}
    if "type" not in schema:
        return schema
    kinds = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
    found = {**schema, "type": [*kinds, "null"]}
    return {**found, "enum": [*schema["enum"], None]} if "enum" in schema else found


def _query_parameter(parameter: dict[str, Any], *, repeated: bool) -> dict[str, Any]:
    """Rejects empty values except for page_token; describes repeated parameters."""
    schema = parameter["schema"]
    inner = schema.get("items", schema)
    if inner.get("type") == "string" and "enum" not in inner and parameter["name"] != "page_token":
        inner.setdefault("minLength", 1)
    if repeated:
        parameter.setdefault("description", "Repeatable, or comma-separated")
    return parameter


def _schema_name(schema: Schema | type[Schema] | str) -> str | bool:
    cls = schema if isinstance(schema, type) else type(schema)
    # A query's parameters are listed inline, never by reference.
    return False if isinstance(schema, str) or issubclass(cls, ListQuerySchema) else cls.__name__.removesuffix("Schema")
