"""JSON as it is read from requests."""

import pytest

from app.http.errors import BadShape, MalformedJson
from app.http.request_body import check_content, parse, validated
from app.schemas.jobs import SubmitJobSchema


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"{",
        b"\xef\xbb\xbf{}",
        b"{}{}",
        b"{\x00}",
        b"\xff",
        b'{"a":NaN}',
        b"[Infinity]",
        b"[-Infinity]",
        b"[1e999]",
        b"[-1e999]",
        b'{"a":1,"a":1}',
        b'[{"x":{"b":1,"b":2}}]',
        b"[" * 100_000,
        b"[" + b"1" * 101 + b"]",
        b"[01]",
        b"['a']",
        b"[1,]",
        b"// x\n{}",
    ],
)
def test_what_is_not_strict_json_is_refused(raw: bytes) -> None:
    with pytest.raises(MalformedJson):
        parse(raw)


def test_json_is_read_as_it_stands() -> None:
    assert parse('{"a":[1,2.5,-3e2,true,null,"ü\\u00fc\\ud83d\\ude00"]}'.encode()) == {
        "a": [1, 2.5, -300.0, True, None, "üü😀"]
    }


def test_nesting_is_limited() -> None:
    check_content(parse(b"[" * 32 + b"]" * 32), max_nesting=32)
    with pytest.raises(MalformedJson):
        check_content(parse(b"[" * 33 + b"]" * 33), max_nesting=32)


@pytest.mark.parametrize(
    ("document", "field"),
    [({"a": {"b": ["x", "y\0"]}}, "a.b.1"), ({"a": "\ud800"}, "a"), ({"a": {"k\0": 1}}, "a"), ({"\udfff": 1}, "")],
)
def test_text_that_cannot_be_stored_names_its_place(document: dict[str, object], field: str) -> None:
    with pytest.raises(BadShape) as raised:
        check_content(document, max_nesting=32)

    assert raised.value.details[0][0] == field


def test_every_problem_of_a_document_is_reported_with_its_dotted_field() -> None:
    document = {
        "nam": "x",
        "labels": {"a b": "x", "k": 5},
        "training_config": {
            "base_model": {},
            "framework": {"type": "X"},
            "training_type": "SFT",
            "environment": {"1": ""},
        },
        "data_config": {"sources": [{"path": "x"}, {"pth": "x"}], "seed": 1.5},
        "resource_config": [],
    }

    with pytest.raises(BadShape) as raised:
        validated(SubmitJobSchema(), document)

    assert {field for field, _ in raised.value.details} == {
        "name",
        "nam",
        "labels.a b",
        "labels.k",
        "training_config.base_model.model_id",
        "training_config.framework.type",
        "training_config.environment.1",
        "data_config.sources.1.path",
        "data_config.sources.1.pth",
        "data_config.seed",
        "resource_config",
    }


def test_fields_that_are_named_like_a_part_of_an_object_keep_their_names() -> None:
    condition = {"column": "a", "op": "==", "value": {}}
    document = {
        "_schema": "x",
        "labels": {"value": 5, "key": "x", "a b": "x"},
        "data_config": {"sources": [{"path": "x", "filters": [condition]}], "key": 1},
    }

    with pytest.raises(BadShape) as raised:
        validated(SubmitJobSchema(), document)

    assert {field for field, _ in raised.value.details} >= {
        "_schema",
        "labels.value",
        "labels.a b",
        "data_config.key",
        "data_config.sources.0.filters.0.value",
    }


def test_null_means_left_out() -> None:
    document = {
        "name": "x",
        "labels": None,
        "training_config": {
            "training_type": "SFT",
            "base_model": {"model_id": "m", "revision": None},
            "framework": {"type": "HF_TRAINER", "distributed": None},
        },
        "output_config": None,
        "data_config": {"sources": [{"path": "x", "format": None}]},
        "resource_config": {"gpu_count": None},
    }

    loaded = validated(SubmitJobSchema(), document).to_json()

    assert loaded["labels"] == {}
    assert loaded["resource_config"]["gpu_count"] == 1
    assert loaded["output_config"]["checkpoint"] == {}
    assert "revision" not in loaded["training_config"]["base_model"]
    assert loaded["data_config"]["sources"] == [{"path": "x"}]
