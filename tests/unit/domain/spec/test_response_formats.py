"""Which forms of answers are accepted, and where a schema that is none is at fault."""

from typing import Any

import pytest

from app.domain.spec.response_formats import BadResponseFormat, check_response_format


def fault(form: dict[str, Any]) -> tuple[str, str]:
    with pytest.raises(BadResponseFormat) as raised:
        check_response_format(form)
    return raised.value.part, str(raised.value)


def of_schema(schema: Any) -> dict[str, Any]:
    return {"type": "json_schema", "schema": schema}


@pytest.mark.parametrize(
    "form",
    [
        {},
        {"type": "regex", "pattern": "(yes|no)"},
        of_schema({}),
        of_schema({"type": "object", "properties": {"a": {"type": ["string", "null"]}}, "required": ["a"]}),
        of_schema({"$defs": {"x": {"enum": [1, 2]}}, "items": {"$ref": "#/$defs/x"}, "additionalProperties": False}),
        of_schema({"anyOf": [{"const": 1}, {"type": "string", "pattern": "^a"}]}),
    ],
)
def test_form_that_answers_can_have_is_accepted(form: dict[str, Any]) -> None:
    check_response_format(form)


@pytest.mark.parametrize(
    ("form", "part"),
    [
        ({"type": "xml"}, ".type"),
        ({"schema": {}}, ".type"),
        ({"type": "regex"}, ".pattern"),
        ({"type": "regex", "pattern": ""}, ".pattern"),
        ({"type": "regex", "pattern": 5}, ".pattern"),
        ({"type": "regex", "pattern": "a", "schema": {}}, ".schema"),
        ({"type": "json_schema"}, ".schema"),
        (of_schema("object"), ".schema"),
        (of_schema(True), ".schema"),
        (of_schema({"type": "text"}), ".schema.type"),
        (of_schema({"type": [{}]}), ".schema.type"),
        (of_schema({"properties": []}), ".schema.properties"),
        (of_schema({"properties": {"a": {"type": "text"}}}), ".schema.properties.a.type"),
        (of_schema({"items": 5}), ".schema.items"),
        (of_schema({"anyOf": []}), ".schema.anyOf"),
        (of_schema({"oneOf": [{}, 1]}), ".schema.oneOf.1"),
        (of_schema({"enum": []}), ".schema.enum"),
        (of_schema({"required": "a"}), ".schema.required"),
        (of_schema({"$ref": "https://example.com/x"}), ".schema.$ref"),
    ],
)
def test_schema_that_is_none_is_refused_where_it_is_wrong(form: dict[str, Any], part: str) -> None:
    assert fault(form)[0] == part


def test_deep_schema_is_refused() -> None:
    schema: dict[str, Any] = {}
    for _ in range(80):
        schema = {"items": schema}

    assert "deeper than 64" in fault(of_schema(schema))[1]
