"""Values of a parameter, and what is refused when one is read."""

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.domain.errors import BadSpec
from app.domain.sweeps.parameters import Parameter, same
from tests.unit.domain.sweeps.drawn_spaces import PARAMETERS, UNITS


@given(PARAMETERS, UNITS)
def test_a_drawn_value_stays_in_the_parameter(raw: dict[str, Any], unit: float) -> None:
    parameter = Parameter.from_json("a", raw)

    value = parameter.from_unit(unit)

    assert parameter.contains(value)
    assert same(parameter.normal(value), value)


@given(PARAMETERS)
def test_a_parameter_is_read_back_as_it_was_written(raw: dict[str, Any]) -> None:
    parameter = Parameter.from_json("a.b", raw)

    written = json.loads(json.dumps(parameter.to_json()))

    assert repr(Parameter.from_json("a.b", written)) == repr(parameter)


@given(PARAMETERS, st.data())
def test_every_value_of_a_finite_parameter_has_an_index(raw: dict[str, Any], data: st.DataObject) -> None:
    parameter = Parameter.from_json("a", raw)
    size = parameter.size
    if size is None:
        return
    index = data.draw(st.integers(0, size - 1))

    assert parameter.contains(parameter.at(index))
    with pytest.raises(IndexError, match=f"no value {size}"):
        parameter.at(size)


@given(PARAMETERS, UNITS, UNITS)
def test_a_range_rises_with_the_unit(raw: dict[str, Any], one: float, other: float) -> None:
    parameter = Parameter.from_json("a", {**raw, "values": sorted(raw["values"], key=str)} if "values" in raw else raw)
    low, high = sorted((one, other))
    if parameter.values:
        return

    assert parameter.from_unit(low) <= parameter.from_unit(high)  # type: ignore[operator]


def test_each_value_has_an_equal_share_of_the_unit() -> None:
    parameter = Parameter.from_json("a", {"type": "int", "min": 1, "max": 10, "step": 3})

    drawn = [parameter.from_unit(i / 400) for i in range(400)]

    assert parameter.size == 4
    assert [drawn.count(value) for value in (1, 4, 7, 10)] == [100, 100, 100, 100]


def test_a_logarithmic_scale_gives_each_decade_an_equal_share() -> None:
    parameter = Parameter.from_json("a", {"type": "double", "min": 1e-4, "max": 1, "scale": "log"})

    drawn = [float(parameter.from_unit(i / 400)) for i in range(400)]

    assert sum(value < 1e-2 for value in drawn) == 200


def test_the_ends_of_logarithmic_whole_numbers_are_drawn_as_well() -> None:
    parameter = Parameter.from_json("a", {"type": "int", "min": 1, "max": 1000, "scale": "log"})

    assert (parameter.from_unit(0.0), parameter.from_unit(math.nextafter(1.0, 0))) == (1, 1000)


def test_steps_are_added_as_decimals() -> None:
    parameter = Parameter.from_json("a", {"type": "double", "min": 0.1, "max": 0.75, "step": 0.1})

    values = [parameter.at(i) for i in range(parameter.size or 0)]

    assert values == [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7]
    assert parameter.contains(0.3)
    assert not parameter.contains(0.1 + 2 * 0.1)


@pytest.mark.parametrize(
    ("raw", "type_", "value"),
    [(3, "int", 3), (0.5, "double", 0.5), ("cosine", "categorical", "cosine"), (True, "bool", True)],
)
def test_a_plain_value_is_a_constant(raw: Any, type_: str, value: Any) -> None:
    parameter = Parameter.from_json("a", raw)

    assert (parameter.type, parameter.values, parameter.is_constant) == (type_, (value,), True)


@pytest.mark.parametrize(
    ("values", "type_"), [([1, 2], "int"), ([1, 2.5], "double"), ([True], "bool"), (["a", 1], "categorical")]
)
def test_values_without_a_type_have_that_of_their_own(values: list[Any], type_: str) -> None:
    assert Parameter.from_json("a", {"values": values}).type == type_


def test_a_boolean_has_both_values_by_default() -> None:
    assert Parameter.from_json("a", {"type": "bool"}).values == (False, True)


@pytest.mark.parametrize(
    ("raw", "value", "expected"),
    [
        ({"type": "int", "min": 1, "max": 9}, 5, True),
        ({"type": "int", "min": 1, "max": 9}, 10, False),
        ({"type": "int", "min": 1, "max": 9}, 5.0, False),
        ({"type": "int", "min": 1, "max": 9}, True, False),
        ({"type": "int", "min": 1, "max": 9, "step": 2}, 4, False),
        ({"type": "int", "min": 1, "max": 10, "step": 6}, 10, False),
        ({"type": "double", "min": 0, "max": 1}, 1, True),
        ({"type": "double", "min": 0, "max": 1}, 10**400, False),
        ({"type": "double", "min": 0, "max": 1}, math.nan, False),
        ({"type": "double", "min": 0, "max": 1}, "1", False),
        ({"type": "categorical", "values": [1, "a"]}, True, False),
        ({"type": "categorical", "values": [True, "a"]}, 1, False),
        ({"type": "double", "values": [1, 2]}, 1, True),
    ],
)
def test_contains(raw: dict[str, Any], value: Any, expected: object) -> None:
    assert Parameter.from_json("a", raw).contains(value) is expected


@pytest.mark.parametrize(
    ("raw", "field"),
    [
        ({"type": "int", "min": 2, "max": 1}, "parameters.a.min"),
        ({"type": "double", "min": 0.0, "max": 1, "scale": "log"}, "parameters.a.min"),
        ({"type": "int", "min": 1}, "parameters.a.max"),
        ({"type": "double", "max": 1}, "parameters.a.min"),
        ({"type": "int"}, "parameters.a.min"),
        ({"type": "categorical"}, "parameters.a.values"),
        ({"type": "int", "values": []}, "parameters.a.values"),
        ({"type": "int", "values": list(range(10_001))}, "parameters.a.values"),
        ({"type": "int", "values": 3}, "parameters.a.values"),
        ({"type": "int", "values": [1, 2, 1]}, "parameters.a.values"),
        ({"type": "double", "values": [1, 1.0]}, "parameters.a.values"),
        ({"type": "int", "values": [1.5]}, "parameters.a.values"),
        ({"type": "int", "values": ["1"]}, "parameters.a.values"),
        ({"type": "int", "values": [True]}, "parameters.a.values"),
        ({"type": "bool", "values": [1]}, "parameters.a.values"),
        ({"type": "categorical", "values": [None]}, "parameters.a.values"),
        ({"type": "categorical", "values": ["x" * 4_097]}, "parameters.a.values"),
        ({"type": "categorical", "values": [2**60]}, "parameters.a.values"),
        ({"type": "int", "min": 1.5, "max": 3}, "parameters.a.min"),
        ({"type": "int", "min": 1, "max": 2**60}, "parameters.a.max"),
        ({"type": "int", "min": True, "max": 2}, "parameters.a.min"),
        ({"type": "bool", "min": 0}, "parameters.a.min"),
        ({"type": "categorical", "max": 0}, "parameters.a.max"),
        ({"type": "double", "min": 0, "max": math.inf}, "parameters.a.max"),
        ({"type": "double", "min": math.nan, "max": 1}, "parameters.a.min"),
        ({"type": "double", "min": -1e308, "max": 1.7e308}, "parameters.a.max"),
        ({"type": "double", "min": 0, "max": 10**400}, "parameters.a.max"),
        ({"type": "double", "min": 0, "max": 1, "step": 0}, "parameters.a.step"),
        ({"type": "double", "min": 0, "max": 1e9, "step": 1e-8}, "parameters.a.step"),
        ({"type": "int", "min": 1, "max": 9, "step": -1}, "parameters.a.step"),
        ({"type": "int", "min": 1, "max": 9, "step": 2, "scale": "log"}, "parameters.a.step"),
        ({"type": "int", "min": 1, "max": 9, "scale": "linaer"}, "parameters.a.scale"),
        ({"type": "float", "min": 1, "max": 9}, "parameters.a.type"),
        ({"min": 1, "max": 9}, "parameters.a.type"),
        ({"type": "int", "minimum": 1, "max": 9}, "parameters.a.minimum"),
        ({"type": "bool", "only_if": ["b"]}, "parameters.a.only_if"),
        ({"type": "bool", "only_if": {"b": 1}}, "parameters.a.only_if.b"),
        ([1, 2], "parameters.a"),
    ],
)
def test_a_wrong_parameter_is_refused(raw: Any, field: str) -> None:
    with pytest.raises(BadSpec) as caught:
        Parameter.from_json("a", raw)

    assert caught.value.field == field


@pytest.mark.parametrize("name", ["", "1a", "a..b", "a.", "a b", "ä", "x" * 201])
def test_a_wrong_name_is_refused(name: str) -> None:
    with pytest.raises(BadSpec, match="no name of a parameter"):
        Parameter.from_json(name, 1)


def test_a_range_without_ends_is_a_mistake_of_the_caller() -> None:
    with pytest.raises(ValueError, match="neither values nor a range"):
        Parameter(name="a", type="int").from_unit(0.5)
