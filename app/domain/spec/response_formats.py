"""`response_format` of a task: the form that answers must have, as a JSON schema or a regular expression."""

from collections.abc import Mapping
from typing import Any

JSON_SCHEMA, REGEX = "json_schema", "regex"
TYPES = (JSON_SCHEMA, REGEX)
LONGEST_PATTERN = 4096
_JSON_TYPES = ("object", "array", "string", "number", "integer", "boolean", "null")
# Keywords whose value is a schema, a list of schemas, or an object of schemas.
_ONE = ("items", "additionalProperties", "not", "contains", "propertyNames", "if", "then", "else")
_SEVERAL = ("anyOf", "oneOf", "allOf", "prefixItems")
_NAMED = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas")
_DEEPEST = 64


class BadResponseFormat(ValueError):
    """``part`` is the path of the fault below ``response_format``, with a leading dot; the message says why."""

    def __init__(self, part: str, message: str) -> None:
        super().__init__(message)
        self.part = part


def check_response_format(form: Mapping[str, Any]) -> None:
    """Raise BadResponseFormat for an unknown type, a schema that is none, or a field of another type."""
    if not form:
        return
    kind = form.get("type")
    if kind not in TYPES:
        raise BadResponseFormat(".type", f"type is one of {', '.join(TYPES)}; leave response_format out for free text")
    own = "schema" if kind == JSON_SCHEMA else "pattern"
    if foreign := next((name for name in form if name not in ("type", own)), None):
        raise BadResponseFormat(f".{foreign}", f"type {kind} has the field {own} alone; leave this one out")
    if own not in form:
        raise BadResponseFormat(f".{own}", f"type {kind} needs {own}")
    if kind == JSON_SCHEMA:
        _check_schema(form[own], ".schema", depth=1)
    elif not isinstance(form[own], str) or not 0 < len(form[own]) <= LONGEST_PATTERN:
        raise BadResponseFormat(
            ".pattern", f"pattern is a regular expression of 1 to {LONGEST_PATTERN} characters that answers match"
        )


def _check_schema(schema: object, path: str, *, depth: int) -> None:
    if isinstance(schema, bool) and depth > 1:
        return
    if not isinstance(schema, Mapping):
        raise BadResponseFormat(path, "a JSON schema is an object, such as {'type': 'object', 'properties': {…}}")
    if depth > _DEEPEST:
        raise BadResponseFormat(path, f"the schema is nested deeper than {_DEEPEST} levels")
    _check_keywords(schema, path)
    for name in _ONE:
        if name in schema:
            _check_schema(schema[name], f"{path}.{name}", depth=depth + 1)
    for name in (*_SEVERAL, *_NAMED):
        if name in schema:
            for key, inner in _members(schema[name], name, path):
                _check_schema(inner, f"{path}.{name}.{key}", depth=depth + 1)


def _members(value: object, name: str, path: str) -> list[tuple[object, object]]:
    if name in _NAMED and isinstance(value, Mapping):
        return list(value.items())
    if name in _SEVERAL and isinstance(value, list) and value:
        return list(enumerate(value))
    what = "an object of schemas" if name in _NAMED else "a list of at least one schema"
    raise BadResponseFormat(f"{path}.{name}", f"{name} is {what}")


def _check_keywords(schema: Mapping[str, Any], path: str) -> None:
    kinds = schema.get("type", [])
    for kind in kinds if isinstance(kinds, list) else [kinds]:
        if kind not in _JSON_TYPES:
            raise BadResponseFormat(f"{path}.type", f"a JSON schema's type is one of {', '.join(_JSON_TYPES)}")
    if "enum" in schema and not (isinstance(schema["enum"], list) and schema["enum"]):
        raise BadResponseFormat(f"{path}.enum", "enum is a list of at least one value")
    required = schema.get("required", [])
    if not isinstance(required, list) or not all(isinstance(each, str) for each in required):
        raise BadResponseFormat(f"{path}.required", "required is a list of names of properties")
    reference = schema.get("$ref", "#")
    if not isinstance(reference, str) or not reference.startswith("#"):
        raise BadResponseFormat(f"{path}.$ref", "a reference stays within the schema; begin it with #/$defs/")
