"""Points of the unit cube for the values of a space: a coordinate for each parameter that is not constant."""

import math
from collections.abc import Mapping, Sequence

from app.domain.sweeps.parameters import Parameter, Value, same
from app.domain.sweeps.space import Space

_BELOW_ONE = math.nextafter(1.0, 0.0)


def varying(space: Space) -> list[Parameter]:
    """The parameters that coordinates stand for, in the order of the space."""
    return [each for each in space.parameters if not each.is_constant]


def values_at(space: Space, point: Sequence[float]) -> dict[str, Value]:
    """The values at a point; coordinates of parameters that are not active have no effect."""
    units = dict(zip((each.name for each in varying(space)), point, strict=True))
    values: dict[str, Value] = {}
    for each in space.parameters:
        if space.active(each, values):
            unit = min(max(units.get(each.name, 0.0), 0.0), _BELOW_ONE)
            values[each.name] = each.from_unit(unit)
    return values


def point_of(space: Space, values: Mapping[str, Value]) -> list[float]:
    """A point that has these values; the middle where a parameter is not active."""
    return [unit_of(each, values[each.name]) if each.name in values else 0.5 for each in varying(space)]


def unit_of(parameter: Parameter, value: Value) -> float:
    """The inverse of Parameter.from_unit: the middle of what yields the value."""
    size = parameter.size
    if parameter.values:
        place = next((place for place, mine in enumerate(parameter.values) if same(mine, value)), 0)
        return (place + 0.5) / len(parameter.values)
    if parameter.low is None or parameter.high is None:
        raise ValueError(f"{parameter.name} has neither values nor a range")
    low, high = parameter.low, parameter.high
    if size is not None and parameter.scale == "linear":
        return (round((float(value) - low) / (parameter.step or 1)) + 0.5) / size
    if parameter.scale == "linear":
        return (float(value) - low) / (high - low)
    if parameter.type == "int":
        low, high = low - 0.5, high + 0.5
    return math.log(float(value) / low) / math.log(high / low)
