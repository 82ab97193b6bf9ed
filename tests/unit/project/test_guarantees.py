"""The page of guarantees names for each promise the tests that hold it; all of them exist."""

import ast
import re
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[2]
PAGE = TESTS.parent / "docs" / "reference" / "guarantees.md"
PROMISES = [
    *(f"I-{number:02}" for number in (1, 3, 4)),
    *(f"O-{number:02}" for number in (1, 4)),
    *(f"P-{number:02}" for number in (*range(1, 27), 30, 33, *range(35, 44))),
    *(f"S-{number:02}" for number in (1, 2, 3, 4)),
]
_ROW = re.compile(r"^\| ([IOPS]-\d\d) \| (.+) \| (.+) \|$", re.MULTILINE)
ROWS = {number: held_by for number, _, held_by in _ROW.findall(PAGE.read_text())}


def test_every_promise_is_on_the_page():
    assert sorted(ROWS) == PROMISES


@pytest.mark.parametrize("promise", PROMISES)
def test_tests_of_a_promise_exist_or_the_page_says_why_not(promise: str):
    named = re.findall(r"`([a-z_0-9/]+(?:::\w+)?)`", ROWS[promise])

    assert [name for name in named if not exists(name)] == []
    assert named or ROWS[promise].startswith("not yet")


def exists(named: str) -> bool:
    file, _, function = named.partition("::")
    path = TESTS / f"{file}.py"
    if not path.exists():
        return False
    return not function or function in {
        node.name for node in ast.parse(path.read_text()).body if isinstance(node, ast.FunctionDef)
    }
