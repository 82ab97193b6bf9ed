"""Answers of a file service that list a directory, and those that are none."""

import json

import pytest

from workers.fetching.failures import Unusable
from workers.fetching.shares import files_in


def entry(**changed):
    return {"path": "config.json", "size": 2, **changed}


OUTSIDE = [
    "",
    "/etc/passwd",
    "../x",
    "a/../../x",
    "a/./b",
    ".",
    "..",
    "a//b",
    "a/",
    "/",
    "a\\b",
    "a\x00b",
    "a\nb",
    "a\ud800b",
    "x" * 256,
    "d/" * 600 + "x",
    7,
    None,
]


@pytest.mark.parametrize(
    "entries",
    [
        *([entry(path=path)] for path in OUTSIDE),
        [entry(), entry()],
        [entry(), entry(path="config.json/x")],
        [entry(path="a/b/c"), entry(path="a/b")],
        [entry(size=-1)],
        [entry(size="2")],
        [entry(size=True)],
        [entry(size=2.5)],
        [{"path": "x"}],
        ["x"],
        [None],
        [entry(sha256="abc")],
        [entry(sha256=7)],
        [entry(etag="bare")],
        [entry(etag=['"x"'])],
        [entry(etag=f'"{"x" * 2000}"')],
        [entry(type="symlink")],
        [entry(type="directory")],
        [entry(type=None)],
    ],
)
def test_listing_of_what_can_be_no_directory_here_is_malformed(entries):
    with pytest.raises(Unusable, match="listing of it is malformed"):
        files_in(json.dumps({"files": entries}).encode(), "drive")


@pytest.mark.parametrize(
    "body", [b"<html>", b"", b"[]", b"{}", b'{"files": {}}', b"\xff", b"[" * 100_000, b'{"files": [', b"9" * 5000]
)
def test_answer_that_is_no_listing(body):
    with pytest.raises(Unusable, match="does not answer with a listing"):
        files_in(body, "drive")


def test_listing_may_tell_more_than_is_needed():
    listed = [
        entry(path="b", sha256="A" * 64, etag=None),
        entry(path="a", type="file", modified="2026-01-01", etag='W/"x"'),
    ]

    files = files_in(json.dumps({"files": listed, "path": "/x"}).encode(), "drive")

    assert [(each.path, each.size, each.version, each.sha256) for each in files] == [
        ("a", 2, 'W/"x"', ""),
        ("b", 2, "a" * 64, "a" * 64),
    ]
