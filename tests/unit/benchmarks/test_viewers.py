"""A benchmark of viewers that measured nothing says so."""

import argparse
from typing import Any

import pytest

from benchmarks.viewers import CLIENTS, unmeasured

GIVEN = argparse.Namespace(rate=40.0, seconds=20.0, rounds=1)
WHOLE = {"requests": 800, "not_200": 0}


@pytest.mark.parametrize(
    ("changes", "missing"),
    [
        ({}, []),
        ({"without": {**WHOLE, "requests": 799}}, ["799 of 800 requests were answered without viewers"]),
        ({"with": {**WHOLE, "not_200": 2}}, ["2 answers with viewers were no 200"]),
        ({"seen": {"parts": 9, "failed": 1}}, ["1 viewers failed"]),
        ({"seen": {"parts": 0, "failed": 0}}, ["no viewer got a part of the page"]),
    ],
)
def test_what_is_missing_is_named(changes: dict[str, Any], missing: list[str]) -> None:
    assert 800 % CLIENTS == 0
    found = {"without": WHOLE, "with": WHOLE, "seen": {"parts": 9, "failed": 0}}

    assert unmeasured({**found, **changes}, GIVEN) == missing
