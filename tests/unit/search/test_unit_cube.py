"""Points of the unit cube: each value has one, and it yields the value again."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.domain.sweeps.draws import random_values
from app.search.unit_cube import point_of, values_at, varying
from tests.builders.search_questions import CONDITIONAL, PLAIN, space_of

SPACES = [space_of(PLAIN), space_of(CONDITIONAL)]


@pytest.mark.parametrize("space", SPACES, ids=["plain", "conditional"])
@given(seed=st.integers(0, 2**62))
def test_values_have_a_point_that_yields_them(space, seed):
    values = random_values(space, seed)

    point = point_of(space, values)
    again = values_at(space, point)

    assert all(0 <= each <= 1 for each in point)
    assert again == {
        name: pytest.approx(value, rel=1e-9, abs=1e-12) if isinstance(value, float) else value
        for name, value in values.items()
    }


@pytest.mark.parametrize("unit", [-0.1, 0.0, 1.0, 1.1, math.nextafter(1.0, 0.0)])
def test_points_on_the_border_and_beyond_it_have_values_of_the_space(unit):
    for space in SPACES:
        values = values_at(space, [unit] * len(varying(space)))

        assert all(each.contains(values[each.name]) for each in space.parameters if each.name in values)


def test_constants_have_no_coordinate():
    assert [each.name for each in varying(space_of({"a": 1, "b": {"type": "bool"}}))] == ["b"]
