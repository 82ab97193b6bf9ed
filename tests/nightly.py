"""Which tests run nightly and not in CI, by the table in tests/nightly.toml."""

import re
import tomllib
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

TABLE = Path(__file__).parent / "nightly.toml"


@cache
def table() -> Mapping[str, re.Pattern[str]]:
    """Each entry, and what fits it: a file, a function with all its variants, or some of these."""
    entries = [test for group in tomllib.loads(TABLE.read_text(encoding="utf-8"))["of"] for test in group["tests"]]
    return {entry: re.compile(re.escape(entry).replace(r"\*", ".*") + r"(::.*|\[.*)?") for entry in entries}


def is_nightly(test: str) -> bool:
    """By its id: FILE::FUNCTION[VARIANT]."""
    return any(pattern.fullmatch(test) for pattern in _patterns_for(test.partition("::")[0]))


@cache
def _patterns_for(file: str) -> Sequence[re.Pattern[str]]:
    """Those that can fit tests of this file: every run asks about each of 20 000 tests."""
    entries = ((entry.partition("::")[0].partition("*")[0], pattern) for entry, pattern in table().items())
    return [pattern for start, pattern in entries if file.startswith(start)]
