"""The retry of failed tests in `.ci/run`: only for a few, and only while the list of unsteady tests has room."""

import json
import re
from pathlib import Path

import pytest

from scripts.lanes import ROOT
from scripts.unsteady import FEW, ROOM, judge, known, last_failed

WHY = "2026-11-25: the broker's port may be taken"
FULL = {f"tests/test_{number}.py::test": WHY for number in range(ROOM)}


def test_the_list_is_short_and_says_of_each_test_why_and_since_when() -> None:
    assert len(known()) <= ROOM
    for test, why in known().items():
        file, _, name = test.partition("::")
        assert re.search(rf"def {name}\(", (ROOT / file).read_text(encoding="utf-8")), f"there is no {test}"
        assert re.fullmatch(r"\d{4}-\d\d-\d\d: .{10,}", why), test


def test_few_failures_are_retried_and_named() -> None:
    retried, lines = judge(["tests/a.py::test_b[x-1]"], {"tests/a.py::test_b": WHY})

    assert retried
    assert lines == [f"tests/a.py::test_b[x-1]: known ({WHY})"]


def test_unlisted_failure_is_reported_to_be_fixed_or_listed() -> None:
    retried, lines = judge(["tests/a.py::test_b"], {})

    assert retried
    assert "new; if it passes now, mend it or write it down in tests/unsteady.toml" in lines[0]


@pytest.mark.parametrize("count", [0, FEW + 1])
def test_many_failures_or_a_run_without_results_are_not_retried(count: int) -> None:
    retried, lines = judge([f"tests/a.py::test[{number}]" for number in range(count)], {"tests/a.py::test": WHY})

    assert not retried
    assert lines[0].startswith(f"{count} tests failed")


def test_unlisted_failure_is_not_retried_when_the_list_is_full() -> None:
    assert judge(["tests/new.py::test"], FULL) == (
        False,
        ["no second go: tests/unsteady.toml has no room for tests/new.py::test"],
    )
    assert judge([*FULL][:1], FULL)[0]


def test_cases_of_one_test_take_one_place() -> None:
    four = dict([*FULL.items()][:-1])

    assert judge(["tests/new.py::test[1]", "tests/new.py::test[2]"], four)[0]
    assert not judge(["tests/new.py::test", "tests/other.py::test"], four)[0]


def test_what_failed_is_what_pytest_wrote_down(tmp_path: Path) -> None:
    assert last_failed(tmp_path) == []

    (tmp_path / ".pytest_cache/v/cache").mkdir(parents=True)
    (tmp_path / ".pytest_cache/v/cache/lastfailed").write_text(json.dumps({"tests/a.py::b": True}))
    assert last_failed(tmp_path) == ["tests/a.py::b"]
