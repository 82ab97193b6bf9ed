"""Formulas over the rewards of graders."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.domain.graders.formula import Formula, FormulaFailed, InvalidFormula, is_name

VALUES = {"a": 0.5, "b": 2.0, "_c1": -3.0}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("a", 0.5),
        ("0.6 * a + 0.4 * b", 1.1),
        ("(100 - abs(b - a)) / 100", 0.985),
        ("1 - 2 - 3", -4.0),
        ("8 / 2 / 2", 2.0),
        ("2 ^ 3 ^ 2", 512.0),
        ("-2^2", -4.0),
        ("2^-1", 0.5),
        ("--a", 0.5),
        ("min(a, b, _c1) + max(b)", -1.0),
        ("floor(a) + ceil(a) + sqrt(4) + exp(0) + log(exp(1))", 5.0),
        ("1e-1 + .5 + 2.", 2.6),
    ],
)
def test_value_is_that_of_arithmetic(text: str, value: float) -> None:
    assert Formula(text).value(VALUES) == pytest.approx(value)


def test_names_are_those_of_graders() -> None:
    assert Formula("max(a, b) * 2 + a").names == {"a", "b"}
    assert Formula("a") == Formula("a")
    assert hash(Formula("a")) == hash(Formula("a"))
    assert Formula("a") != Formula("b")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "it is empty"),
        ("a b", "b is not expected after a"),
        ("a +", "more is expected after a +"),
        ("(a", ") is expected after ( a"),
        ("a ** b", "* is not expected after a *"),
        ("a; b", "'; b' can't be read"),
        ("a.b", "'.b' can't be read"),
        ("a[0]", "can't be read"),
        ("max", "( is expected after max"),
        ("sqrt(a, b)", "sqrt takes one number, not 2"),
        ("(" * 60 + "a" + ")" * 60, "nested deeper than 50"),
        ("2^" * 60 + "a", "nested deeper than 50"),
        ("a" + "+a" * 600, "more than 400"),
    ],
)
def test_what_is_no_formula_is_refused(text: str, why: str) -> None:
    with pytest.raises(InvalidFormula) as refused:
        Formula(text)

    assert why in str(refused.value)


@pytest.mark.parametrize(
    "text", ["1 / (a - a)", "sqrt(_c1)", "log(0)", "(-8)^0.5", "exp(9999)", "1e308 * 10", "2^9999"]
)
def test_no_number_is_an_error(text: str) -> None:
    with pytest.raises(FormulaFailed):
        Formula(text).value(VALUES)


@given(st.text(alphabet="ab01.+-*/^(), max", max_size=40))
def test_any_text_is_a_formula_or_refused(text: str) -> None:
    try:
        formula = Formula(text)
        value = formula.value(dict.fromkeys(formula.names, 0.5))
    except (InvalidFormula, FormulaFailed):
        return
    assert math.isfinite(value)


def test_names_of_graders() -> None:
    assert [is_name(text) for text in ("a1", "_", "1a", "a-b", "", "min", "é", "a" * 65)] == [True, True, *[False] * 6]
