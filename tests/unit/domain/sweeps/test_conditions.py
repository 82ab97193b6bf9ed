"""Conditions of ``require``: what they compare, and what is no condition."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.domain.errors import BadSpec
from app.domain.sweeps.conditions import parse_condition
from app.domain.sweeps.parameters import Value


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a < 3", True),
        ("a<=1.5", False),
        ("a > b", False),
        ("a >= 2", True),
        ("a == 2", True),
        ("a != 2", False),
        ("a + b * 2 == 12", True),
        ("(a + b) * 2 == 14", True),
        ("b - a - 1 == 2", True),
        ("b / a / 2 == 1.25", True),
        ("-a + b == 3", True),
        ("--a == 2", True),
        ("-(a - b) == 3", True),
        ("a * 1e1 == 20", True),
        ("a * .5 == 1", True),
        ("data_config.batch_size * a <= 16", True),
        ("data_config.batch_size*a<16", False),
        ("  a\t<\n3  ", True),
        ("flag == 1", True),
    ],
)
def test_a_condition_compares(text: str, expected: object) -> None:
    values: dict[str, Value] = {"a": 2, "b": 5, "data_config.batch_size": 8, "flag": True}

    assert parse_condition(text, field="require.0").holds(values) is expected


def test_names_of_a_condition_are_known() -> None:
    assert parse_condition("a * data_config.seed < a + 2", field="").names == {"a", "data_config.seed"}


def test_a_condition_says_nothing_of_an_inactive_parameter() -> None:
    assert parse_condition("a < b", field="").holds({"a": 1})


@pytest.mark.parametrize("text", ["a / (b - b) < 1", "a / 0 != 1"])
def test_a_division_by_zero_is_not_met(text: str) -> None:
    assert not parse_condition(text, field="").holds({"a": 1, "b": 2})


def test_what_is_no_number_is_not_met() -> None:
    many = "*".join(["a"] * 100)

    assert not parse_condition(f"{many} - {many} != 1", field="").holds({"a": 1e200})


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("a", "no comparison"),
        ("", "its end"),
        ("a <", "its end"),
        ("< a", "'<'"),
        ("a < 1 < 2", "two conditions"),
        ("a < 1 2", "should end"),
        ("a < 1)", "should end"),
        ("(a < 1", "closing parenthesis"),
        ("a ** 2 < 1", r"'\*'"),
        ("a = 1", "not understood"),
        ("a & 1 < 2", "not understood"),
        ("'x' == a", "not understood"),
        ("1 < 2", "no parameter"),
        ("a < 1e999", "too large"),
        ("f(a) == 1", "no comparison"),
        ("__import__('os') == 1", "not understood"),
        ("a" * 501, "501 characters"),
        ("(" * 33 + "a" + ")" * 33 + " < 1", "nested"),
        ("-" * 33 + "a < 1", "nested"),
    ],
)
def test_what_is_no_condition_is_refused(text: str, part: str) -> None:
    with pytest.raises(BadSpec, match=part) as caught:
        parse_condition(text, field="require.2")

    assert caught.value.field == "require.2"


@given(st.text(alphabet="ab01.+-*/()<>=! ", max_size=40))
def test_any_text_is_a_condition_or_refused(text: str) -> None:
    try:
        condition = parse_condition(text, field="require.0")
    except BadSpec:
        return

    assert condition.holds({"a": 1, "b": 2.5}) in (True, False)


_terms = st.recursive(
    st.sampled_from(["a", "b", "2", "0.5"]),
    lambda inner: st.one_of(
        st.builds("({} {} {})".format, inner, st.sampled_from("+-*/"), inner), st.builds("-{}".format, inner)
    ),
    max_leaves=8,
)


@given(_terms, st.sampled_from(["<", "<=", "==", "!=", ">", ">="]), _terms)
def test_terms_mean_what_they_mean_in_python(one: str, sign: str, other: str) -> None:
    text = f"{one} {sign} {other} + 0 * a"
    try:
        expected = eval(text, {"a": 3.0, "b": 0.25})
    except ZeroDivisionError:
        expected = False

    assert parse_condition(text, field="").holds({"a": 3.0, "b": 0.25}) is expected
