"""Operators of filters, and what each compares with."""

from typing import Any

import pytest

from app.domain.spec.data.filters import ALIASES, OPERATORS, BadFilter, check_filter, operator_of
from app.domain.spec.model import Filter


def test_every_alias_means_an_operator() -> None:
    assert {operator_of(alias) for alias in ALIASES} == {"==", "!=", "<", "<=", ">", ">="}
    assert [operator_of(name) for name in OPERATORS] == list(OPERATORS)


@pytest.mark.parametrize(
    ("op", "value"),
    [
        ("==", "x"),
        ("ne", 5),
        ("==", True),
        ("<", 1.5),
        ("ge", "2026"),
        ("in", ["a"]),
        ("not_in", [1, 2.5]),
        ("contains", "x"),
        ("not_contains", 5),
        ("is_null", None),
        ("not_null", None),
    ],
)
def test_operators_take_what_they_compare_with(op: str, value: Any) -> None:
    assert check_filter(Filter(column="a", op=op, value=value)) is None  # type: ignore[func-returns-value]


@pytest.mark.parametrize(
    ("op", "value", "part"),
    [
        ("=", 1, "op"),
        ("LIKE", 1, "op"),
        ("==", None, "value"),
        ("==", [1], "value"),
        ("in", "abc", "value"),
        ("in", [], "value"),
        ("not_in", None, "value"),
        ("<", True, "value"),
        ("is_null", 1, "value"),
        ("not_null", False, "value"),
        ("contains", ["x"], "value"),
    ],
)
def test_operators_refuse_the_rest(op: str, value: Any, part: str) -> None:
    with pytest.raises(BadFilter) as raised:
        check_filter(Filter(column="a", op=op, value=value))

    assert raised.value.part == part
