"""What Kubernetes' clients take for granted: selectors, patches, tables, and a description in binary form."""

from datetime import UTC, datetime
from typing import Any

import pytest

from app.compat.ome.api import discovery, tables
from app.compat.ome.api.patches import merged, patched
from app.compat.ome.api.selectors import selected
from app.domain.errors import Conflict, InvalidRequest

OBJECT = {
    "metadata": {"name": "x", "labels": {"team": "a", "stage": "dev"}, "creationTimestamp": "2026-01-01T00:00:00Z"},
    "status": {"phase": "Running"},
}


@pytest.mark.parametrize(
    ("labels", "fields", "is_meant"),
    [
        ("", "", True),
        ("team=a,stage!=prod", "", True),
        ("team==b", "", False),
        ("team in (a, b),stage notin (prod)", "", True),
        ("team notin (a)", "", False),
        ("team,!missing", "", True),
        ("missing", "", False),
        ("missing!=x", "", True),
        ("", "metadata.name=x,status.phase!=Failed", True),
        ("", "metadata.name=y", False),
    ],
)
def test_selectors_match_as_kubernetes_documents(labels, fields, is_meant):
    assert selected(labels, fields)(OBJECT) is is_meant


@pytest.mark.parametrize(
    ("labels", "fields"), [("team in a", ""), ("a b", ""), ("", "colour=blue"), ("", "metadata.name")]
)
def test_what_is_no_selector_is_refused(labels, fields):
    with pytest.raises(InvalidRequest, match="is not a requirement"):
        selected(labels, fields)


def test_merge_patches_follow_rfc_7386():
    target = {"a": {"b": 1, "c": [1, 2]}, "d": 1}

    assert merged(target, {"a": {"b": None, "c": [3]}, "e": {"f": None, "g": 1}}) == {
        "a": {"c": [3]},
        "d": 1,
        "e": {"g": 1},
    }
    assert target["a"] == {"b": 1, "c": [1, 2]}


@pytest.mark.parametrize(
    ("operations", "becomes"),
    [
        ([{"op": "add", "path": "/a/c/1", "value": 9}], {"a": {"b": 1, "c": [1, 9, 2]}}),
        ([{"op": "add", "path": "/a/c/-", "value": 9}], {"a": {"b": 1, "c": [1, 2, 9]}}),
        ([{"op": "replace", "path": "/a/b", "value": {"x": 1}}], {"a": {"b": {"x": 1}, "c": [1, 2]}}),
        ([{"op": "remove", "path": "/a/c/0"}], {"a": {"b": 1, "c": [2]}}),
        ([{"op": "move", "from": "/a/b", "path": "/b~1c"}], {"a": {"c": [1, 2]}, "b/c": 1}),
        ([{"op": "copy", "from": "/a/c", "path": "/d"}], {"a": {"b": 1, "c": [1, 2]}, "d": [1, 2]}),
        ([{"op": "test", "path": "/a/b", "value": 1}], {"a": {"b": 1, "c": [1, 2]}}),
    ],
)
def test_json_patches_follow_rfc_6902(operations: list[Any], becomes: dict[str, Any]):
    assert patched({"a": {"b": 1, "c": [1, 2]}}, operations) == becomes


@pytest.mark.parametrize(
    "operation",
    [
        "no",
        {"op": "add"},
        {"op": "paint", "path": "/a", "value": 1},
        {"op": "add", "path": "/a"},
        {"op": "remove", "path": "/none"},
        {"op": "replace", "path": "/c/7", "value": 1},
        {"op": "add", "path": "/c/x", "value": 1},
        {"op": "remove", "path": ""} | {"op": "add", "path": "", "value": 3},
    ],
)
def test_what_is_no_patch_is_refused(operation):
    with pytest.raises(InvalidRequest):
        patched({"c": [1]}, [operation])


def test_failed_test_operation_of_a_patch_is_a_conflict():
    with pytest.raises(Conflict):
        patched({"a": 1}, [{"op": "test", "path": "/a", "value": 2}])


def test_tables_have_a_row_for_each_object():
    now = datetime(2026, 1, 1, 0, 3, tzinfo=UTC)

    tabulate = tables.table_format("application/json;as=Table;v=v1;g=meta.k8s.io,application/json", "Metadata")
    assert tabulate is not None
    table = tabulate("Namespace", [OBJECT], {"resourceVersion": "7"}, now=now)

    assert [column["name"] for column in table["columnDefinitions"]] == ["Name", "Age"]
    assert table["rows"][0]["cells"] == ["x", "3m"]
    assert table["rows"][0]["object"]["kind"] == "PartialObjectMetadata"
    assert tables.table_format("application/json, */*", "Metadata") is None


@pytest.mark.parametrize(("include", "row"), [("None", {"cells"}), ("Object", {"cells", "object"})])
def test_rows_of_tables_come_with_the_part_of_their_objects_that_is_asked_for(include, row):
    tabulate = tables.table_format("application/json;as=Table", include)
    assert tabulate is not None

    (got,) = tabulate("Namespace", [OBJECT], {}, now=datetime(2026, 1, 1, tzinfo=UTC))["rows"]

    assert set(got) == row
    assert got.get("object", OBJECT) == OBJECT


def test_binary_description_is_a_message_of_gnostics():
    # Read back by hand: field 1 "2.0", field 2 {1: title, 2: version}, field 8 empty.
    begin, _, paths = discovery.openapi_binary().partition(b"\x42")  # the key of field 8
    assert begin == b"\x0a\x032.0\x12\x14\x0a\x09Trainyard\x12\x07v1beta1"
    assert (paths[0] & 127) + (paths[1] & 127) * 128 == len(paths) - 2
    assert [path.rpartition("/")[0].rpartition("/")[2] for path in discovery.OPENAPI["paths"]] == [
        "trainingjobs",
        "trainingruntimes",
        "clustertrainingruntimes",
        "basemodels",
    ]
    assert all(path.encode() in paths for path in discovery.OPENAPI["paths"])
