"""Rules of mounts: where a script may find its inputs, code and outputs."""

from typing import Any

import pytest

from app.domain.spec.frameworks.requirements import needed
from app.domain.spec.secrets import with_secrets
from app.schemas.spec.resource_config import MountSchema
from tests.builders.submitted import custom, refusal, spec_of

_MOUNTS = "resource_config.mounts"


@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("x", "is not absolute; begin it with /"),
        ("/a\0b", "is not absolute"),
        ("/a/../b", "is not in its shortest form; write /b"),
        ("//a", "is not in its shortest form; write /a"),
        ("/a/", "is not in its shortest form; write /a"),
        *((path, f"{path} belongs to the system") for path in ("/", "/usr/local/x", "/etc", "/dev/shm", "/tmp")),
    ],
)
def test_path_that_no_job_may_have_is_refused_with_a_way_out(path, why):
    error = refusal(custom((_MOUNTS, [{"path": path, "type": "output"}])))

    assert error.field == f"{_MOUNTS}.0.path"
    assert why in error.message


@pytest.mark.parametrize(
    ("mount", "field", "why"),
    [
        ({"type": "data", "source": 1}, "source", "no index in data_config.sources, which has 1"),
        ({"type": "output", "source": 1}, "source", "only for type data"),
        ({"type": "output", "size_mb": 1}, "size_mb", "only for types memory and empty"),
        ({"type": "empty", "mode": "0555"}, "mode", "only for type files"),
        ({"type": "memory", "sub_path": "a"}, "sub_path", "has no parts"),
        ({"type": "data", "sub_path": "a/../b"}, "sub_path", "must be relative"),
        ({"type": "output", "sub_path": "/a"}, "sub_path", "must be relative"),
        ({"type": "files"}, "files", "has at least one"),
        ({"type": "output", "files": [{"name": "a", "content": "x"}]}, "files", "only for type files"),
        (
            {"type": "files", "files": [{"name": "a", "content": "x"}], "sub_path": "b"},
            "sub_path",
            "is named b; name one",
        ),
        ({"type": "files", "files": [{"name": "a", "content": ""}] * 2}, "files.1.name", "two files are named a"),
        ({"type": "files", "files": [{"name": "a", "content": "***"}]}, "files.0.content", "is not shown; give its"),
        ({"type": "claim"}, "claim", "a mount of type claim names one"),
        ({"type": "claim", "claim": "c", "create": True, "sub_path": "a"}, "sub_path", "a new claim is empty"),
        ({"type": "empty", "claim": "c"}, "claim", "only for type claim"),
        ({"type": "output", "read_only": True}, "read_only", "only for type claim"),
        ({"type": "data", "create": True}, "create", "only for type claim"),
        ({"type": "claim", "claim": "c", "size_mb": 1, "read_only": True}, "size_mb", "without read_only"),
        ({"type": "claim", "claim": "c", "sub_path": "../d"}, "sub_path", "must be relative"),
        ({"type": "claim", "claim": "all"}, "read_only", "a claim of all projects, which jobs only read"),
        ({"type": "claim", "claim": "all", "create": True}, "create", "a claim of all projects; leave create out"),
    ],
)
def test_field_that_does_not_fit_the_type_is_refused(mount, field, why):
    error = refusal(custom((_MOUNTS, [{"path": "/x", **mount}])))

    assert error.field == f"{_MOUNTS}.0.{field}"
    assert why in error.message


@pytest.mark.parametrize(
    ("kind", "change", "why"),
    [
        ("model", ("training_config.base_model.model_id", "none"), "the job has no model"),
        ("code", ("training_config.framework", {"type": "CUSTOM", "custom_command": ["true"]}), "no code directory"),
    ],
)
def test_input_that_the_job_does_not_have_is_refused(kind, change, why):
    error = refusal(custom((_MOUNTS, [{"path": "/x", "type": kind}]), change))

    assert error.field == f"{_MOUNTS}.0.type"
    assert why in error.message


def test_path_of_two_mounts_is_refused():
    error = refusal(custom((_MOUNTS, [{"path": "/x", "type": "output"}, {"path": "/x", "type": "empty"}])))

    assert error.field == f"{_MOUNTS}.1.path"


@pytest.mark.parametrize("claim", ["../c", "a/b", "A", "a..b", "-a", "", "a" * 254])
def test_name_that_no_claim_has_is_refused(claim):
    assert "claim" in MountSchema().validate({"path": "/x", "type": "claim", "claim": claim})


def test_nothing_lies_in_a_claim_that_the_job_may_write_to():
    around: dict[str, Any] = {"path": "/c", "type": "claim", "claim": "scratch"}
    inner = {"path": "/c/in", "type": "empty"}

    error = refusal(custom((_MOUNTS, [inner, around])))

    assert error.field == f"{_MOUNTS}.0.path"
    assert "/c/in lies in /c, a claim that the job may write to" in error.message
    assert spec_of(custom((_MOUNTS, [inner, {**around, "read_only": True}])))
    assert spec_of(custom((_MOUNTS, [{"path": "/cin", "type": "empty"}, around])))


def test_mounts_of_every_type_go_together():
    mounts: list[dict[str, Any]] = [
        {"path": "/home/me/data", "type": "data"},
        {"path": "/home/me/data/part", "type": "data", "source": 0, "sub_path": "a/b"},
        {"path": "/tmp/model", "type": "model"},
        {"path": "/code", "type": "code"},
        {"path": "/out", "type": "output", "sub_path": "model"},
        {"path": "/scratch", "type": "empty"},
        {"path": "/cache", "type": "memory", "size_mb": 10, "required": False},
        {"path": "/team", "type": "claim", "claim": "team.v1", "sub_path": "runs", "read_only": True},
        {"path": "/new", "type": "claim", "claim": "new", "create": True},
    ]

    document = spec_of(custom((_MOUNTS, mounts))).document

    assert [mount.to_json() for mount in document.resource_config.mounts] == mounts


@pytest.mark.parametrize(("required", "capabilities"), [(True, {"mounts"}), (False, set())])
def test_mount_that_is_required_needs_a_node_with_a_sandbox(required, capabilities):
    mounts = [{"path": "/x", "type": "output", "required": required}]

    limits = {"shm_mb": 64, "required": required}

    assert needed(spec_of(custom((_MOUNTS, mounts))).document) == capabilities
    assert needed(spec_of(custom(("resource_config.limits", limits))).document) == capabilities


@pytest.mark.parametrize(
    ("mount", "source", "needs"),
    [
        ({"type": "claim", "claim": "team", "sub_path": "runs"}, "/srv/data", True),
        ({"type": "claim", "claim": "team", "sub_path": "runs", "required": False}, "/srv/data", False),
        ({"type": "claim", "claim": "team"}, "/srv/data", False),
        ({"type": "data"}, "pvc://team/sets", True),
        ({"type": "data", "sub_path": "a"}, "/srv/data", False),
        ({"type": "output"}, "pvc://team/sets", False),
    ],
)
def test_mount_of_a_part_of_a_claim_needs_a_node_that_has_tried_it(mount, source, needs):
    asked = [{"path": "/x", **mount}]

    document = spec_of(custom((_MOUNTS, asked), ("data_config.sources", [{"path": source}]))).document

    assert ("mounts:parts" in needed(document)) is needs


def test_files_of_all_mounts_together_have_a_limit():
    mounts = [{"path": f"/{n}", "type": "files", "files": [{"name": "a", "content": "x" * 60_000}]} for n in range(5)]

    error = refusal(custom((_MOUNTS, mounts)))

    assert error.field == _MOUNTS
    assert "have 300000 bytes, and at most 262144" in error.message
    assert spec_of(custom((_MOUNTS, mounts[:4])))


def test_contents_of_files_are_secrets_of_the_job():
    files = [{"name": "config.yaml", "content": "a: 1"}, {"name": "token", "content": "opensesame"}]
    mounts = [{"path": "/a", "type": "output"}, {"path": "/b", "type": "files", "files": files}]

    spec = spec_of(custom((_MOUNTS, mounts)))

    shown = spec.document.to_json()["resource_config"]["mounts"]
    assert shown[0] == mounts[0]
    assert shown[1]["files"] == [{"name": each["name"], "content": "***"} for each in files]
    assert spec.secrets == {f"{_MOUNTS}.1.files.0.content": "a: 1", f"{_MOUNTS}.1.files.1.content": "opensesame"}
    again = with_secrets(spec.document, spec.secrets).to_json()["resource_config"]["mounts"]
    assert again == mounts
