"""Tables of what becomes of each field: what they refuse, what they warn of, and what a header may say."""

import copy
import itertools
from collections.abc import Mapping
from typing import Any

import pytest
from marshmallow import Schema, fields

from app.domain.errors import BadSpec
from app.domain.spec.model import JobDocument
from app.domain.spec.section import Section
from app.http.envelope import warning_headers
from app.http.request_body import validated
from app.schemas.jobs import SubmitJobSchema
from app.schemas.spec.field_verdicts import acted_on, field_paths, refuse, refused, warned, warnings_of
from tests.unit.api.test_any_document import FULL


class _Volume(Schema):
    path = fields.String()
    read_only = fields.Boolean(data_key="readOnly")


class _Document(Schema):
    name = fields.String()
    labels = fields.Dict()
    volumes = fields.List(fields.Nested(_Volume))
    words = fields.List(fields.String())


TABLE = {
    "name": acted_on("the job's name"),
    "labels": warned("there are none"),
    "volumes.path": warned("nothing is mounted"),
    "volumes.readOnly": refused("all is read-only; leave it out"),
    "words": acted_on("what runs"),
}


def test_paths_are_those_of_the_leaves() -> None:
    assert list(field_paths(_Document())) == ["name", "labels", "volumes.path", "volumes.readOnly", "words"]


def test_warning_names_the_field_once_and_why() -> None:
    document = {"name": "a", "labels": {"b": "c"}, "volumes": [{"path": "/x"}, {"path": "/y"}]}

    assert warnings_of(document, TABLE) == ["labels: there are none", "volumes.path: nothing is mounted"]


@pytest.mark.parametrize("nothing", [None, "", {}, [], False])
def test_empty_values_are_not_warned_about(nothing: object) -> None:
    assert warnings_of({"labels": nothing, "volumes": [{"path": nothing}]}, TABLE) == []


def test_refusal_names_the_item_of_the_list() -> None:
    with pytest.raises(BadSpec, match="all is read-only; leave it out") as caught:
        refuse({"volumes": [{"path": "/x"}, {"readOnly": True}]}, TABLE)

    assert caught.value.field == "volumes.1.readOnly"


def test_document_without_refused_fields_passes() -> None:
    refuse({"name": "a", "volumes": [{"readOnly": False}]}, TABLE)


def every_path(schema: Schema) -> list[str]:
    """Of the fields and of the objects that they are in."""
    leaves = (path.split(".") for path in field_paths(schema))
    return list(dict.fromkeys(itertools.chain(*(itertools.accumulate(each, "{}.{}".format) for each in leaves))))


def refused_field(document: Mapping[str, Any] | Section, path: str) -> str | None:
    try:
        refuse(document, {path: refused("for the test")})
    except BadSpec as error:
        return error.field
    return None


def test_typed_document_gets_the_verdicts_of_its_json() -> None:
    schema = SubmitJobSchema()
    typed: JobDocument = validated(schema, copy.deepcopy(FULL))
    stored, paths = typed.to_json(), every_path(schema)
    table = {path: warned("for the test") for path in paths}

    warnings = warnings_of(typed, table)
    fields_refused = {path: refused_field(typed, path) for path in paths}

    assert "data_config.sources.filters.op: for the test" in warnings
    assert warnings == warnings_of(stored, table)
    assert fields_refused["data_config.sources.split"] == "data_config.sources.0.split"
    assert None in fields_refused.values()
    assert fields_refused == {path: refused_field(stored, path) for path in paths}


def test_header_holds_any_text() -> None:
    [(name, value)] = warning_headers(['spec."x\\y": keine Übung\nmehr'])

    assert (name, value) == ("Warning", '299 - "spec.\\"x\\\\y\\": keine ?bung?mehr"')


def test_many_warnings_end_with_their_number() -> None:
    headers = warning_headers([f"field{number}: no" for number in range(33)])

    assert len(headers) == 31
    assert "and 3 more" in headers[-1][1]
