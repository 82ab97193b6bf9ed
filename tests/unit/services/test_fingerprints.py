"""Fingerprints of patterns: bounded in time, and without revealing files of other users' jobs."""

import os

import pytest

from app.domain.spec.locations.paths import ReadingRules
from app.domain.spec.model import JobDocument
from app.services.preflight import fingerprints
from tests.builders.factories import make_document


@pytest.fixture
def rules(tmp_path):
    root = tmp_path / "inputs"
    for name in ("a/train-1.jsonl", "a/train-2.jsonl", "b/train-1.jsonl", ".hidden/train-1.jsonl"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text("{}\n")
    stored = tmp_path / "data" / "files" / "jobs" / "job-1" / "artifacts"
    stored.mkdir(parents=True)
    (stored / "train-1.jsonl").write_text("{}\n")
    return ReadingRules(
        roots=(str(tmp_path / "data" / "files"), str(root)), data_dir=str(tmp_path / "data"), real_path=os.path.realpath
    )


def fingerprint(rules, location):
    return fingerprints.fingerprint(JobDocument.from_json(make_document()), [location], rules, "default")


@pytest.mark.parametrize(
    ("pattern", "is_there"),
    [
        ("*/train-?.jsonl", True),
        ("a/train-[12].jsonl", True),
        ("c/*", False),
        ("*/none", False),
        ("a/x*/y", False),
        (".h*/*.jsonl", True),
        ("j*/*/*/train-1.jsonl", False),
        ("jobs/job-1/art*/train-1.jsonl", True),
    ],
)
def test_patterns_name_what_fits_and_may_be_read(rules, pattern, is_there):
    assert (fingerprints.seen_here(pattern, rules) is not None) == is_there
    assert (fingerprint(rules, pattern) != "") == is_there


def test_pattern_follows_no_link_out_of_the_roots(rules, tmp_path):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "x.jsonl").write_text("{}\n")
    (tmp_path / "inputs" / "out").symlink_to(tmp_path / "elsewhere")

    assert fingerprints.seen_here("o*/x.jsonl", rules) is None


def test_fingerprint_follows_every_file_that_fits(rules, tmp_path):
    before = fingerprint(rules, "*/train-1.jsonl")
    (tmp_path / "inputs" / "b" / "train-1.jsonl").write_text("[]\n")

    assert fingerprint(rules, "*/train-1.jsonl") != before
    assert fingerprint(rules, "a/train-1.jsonl") == fingerprint(rules, "a/train-1.jsonl")


def test_slow_pattern_gets_no_fingerprint(rules, tmp_path):
    for number in range(12):
        directory = tmp_path / "inputs" / f"d{number}"
        directory.mkdir()
        (directory / "up").symlink_to("..")
    pattern = "/".join(["*"] * 24)

    assert fingerprints.seen_here(pattern, rules) is not None
    assert fingerprint(rules, pattern) == ""


@pytest.mark.parametrize("location", ["x" * 300, "x" * 300 + "/*", "a/" * 2040 + "b"])
def test_name_that_no_file_system_allows_is_not_found(rules, location):
    assert fingerprints.seen_here(location, rules) is None
    assert fingerprint(rules, location) == ""


def test_grader_decides_what_an_inspection_finds():
    documents = [{}, {"grader": {"type": "python"}}, {"grader": {"type": "multi"}}]
    found = {fingerprints.combined(JobDocument.from_json({"training_config": each}), ()) for each in documents}

    assert len(found) == len(documents)
