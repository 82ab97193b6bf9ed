"""What a sandboxed process leaves behind is read with care."""

import io
import json
import os

import pytest

from workers.prepare import inspection_report
from workers.prepare.inspection_report import REPORT, read


def log(text: str = "") -> io.BytesIO:
    return io.BytesIO(text.encode())


def test_a_report_is_read(tmp_path):
    (tmp_path / REPORT).write_text(json.dumps({"warnings": ["w"], "sources": [{"index": 0}], "truncated_share": 0.5}))

    assert read(tmp_path, log(), "") == {
        "warnings": ["w"],
        "sources": [{"index": 0}],
        "truncated_share": 0.5,
        "left_out": [],
        "errors": [],
    }


def test_what_no_database_stores_and_no_reader_expects_is_cut(tmp_path):
    wild = {
        "warnings": ["a\x00b\ud800" + "x" * 5000, 7],
        "errors": [{"error_type": "ALL_IS_LOST", "message": None}, "nonsense"],
        "left_out": "nonsense",
        "numbers": [float("nan"), float("inf"), 1],
        "many": list(range(1000)),
        "deep": {"a": {"b": {"c": {"d": {"e": {"f": {"g": {"h": {"i": 1}}}}}}}}},
    }
    (tmp_path / REPORT).write_text(json.dumps(wild))

    found = read(tmp_path, log(), "")

    assert found["warnings"][0].startswith("a\ufffdb\ufffd")
    assert len(found["warnings"][0]) == inspection_report.LONGEST_TEXT
    assert found["warnings"][1] == "7"
    assert found["errors"] == [{"error_type": "TRAINER_ERROR", "message": "the preflight of model and data failed"}]
    assert found["left_out"] == []
    assert found["numbers"] == [None, None, 1]
    assert len(found["many"]) == inspection_report.MOST_ITEMS
    json.dumps(found, allow_nan=False)


def link_to_secret(path):
    secret = path.with_name("secret")
    secret.write_text('{"warnings": ["the secret"]}')
    path.symlink_to(secret)


@pytest.mark.parametrize(
    "leave",
    [
        lambda path: None,
        lambda path: path.write_text("no json"),
        lambda path: path.write_text("[1]"),
        lambda path: path.write_text("[" * 100_000),
        lambda path: path.write_bytes(b" " * (inspection_report.MOST_BYTES + 1)),
        lambda path: path.mkdir(),
        os.mkfifo,
        link_to_secret,
    ],
)
def test_whatever_else_lies_there_leaves_the_job_to_its_node(tmp_path, leave):
    leave(tmp_path / REPORT)

    found = read(tmp_path, log("first\nValueError: last words\n\n"), "it ended with exit code 1")

    assert found == {"left_out": ["it ended with exit code 1: ValueError: last words"]}
