"""Checks of hyperParameterTuningConfig. Pure."""

from collections.abc import Callable, Mapping
from typing import Any

from app.domain.errors import BadSpec

FIELD = "spec.hyperParameterTuningConfig"
_TYPES = ("int", "double", "categorical")


def check(config: Mapping[str, Any] | None) -> None:
    """Raises BadSpec for the first violation; the schema has checked the types."""
    if not config:
        return
    parameters = config["parameters"]  # may be empty for a built-in trainer
    sizes = [_check_parameter(name, each, config["method"]) for name, each in parameters.items()]
    if config["method"] != "grid":
        if not config.get("maxTrials"):
            raise _bad("maxTrials", f"is required with method {config['method']}: the search space is unbounded")
        return
    total = 1
    for size in sizes:
        total *= size
    if not config.get("maxTrials") and total > 1000:
        raise _bad("maxTrials", f"is required: the grid has {total} points")


def _check_parameter(name: str, space: object, method: str) -> int:
    """The number of its values in a grid; a plain value is a constant."""
    if not isinstance(space, Mapping):
        if isinstance(space, list) or space is None:
            raise _bad(f"parameters.{name}", "must be a value, or an object with a type")
        return 1
    kind = space.get("type")
    if kind not in _TYPES:
        raise _bad(f"parameters.{name}.type", f"must be one of {', '.join(_TYPES)}")
    unknown = space.keys() - {"type", "values", "min", "max", "step", "scale"}
    if unknown:
        raise _bad(f"parameters.{name}.{min(unknown)}", "is not a field of a search space")
    if "values" in space:
        return _check_values(name, space["values"], kind)
    if kind == "categorical":
        raise _bad(f"parameters.{name}.values", "is required for a categorical parameter")
    return _check_range(name, space, kind, method)


def _check_values(name: str, values: object, kind: str) -> int:
    if not isinstance(values, list) or not values:
        raise _bad(f"parameters.{name}.values", "must be a non-empty list")
    fits: dict[str, Callable[[Any], bool]] = {
        "int": _is_whole,
        "double": _is_number,
        "categorical": lambda value: isinstance(value, str | int | float),
    }
    if not all(fits[kind](value) for value in values):
        raise _bad(f"parameters.{name}.values", f"must all be of type {kind}")
    return len(values)


def _check_range(name: str, space: Mapping[str, Any], kind: str, method: str) -> int:
    for end in ("min", "max"):
        if not (_is_whole if kind == "int" else _is_number)(space.get(end)):
            raise _bad(f"parameters.{name}.{end}", f"must be a number of type {kind}, or set values")
    low, high, step = space["min"], space["max"], space.get("step", 1 if kind == "int" else None)
    if low > high:
        raise _bad(f"parameters.{name}.min", "must not be above max")
    if step is not None and not (_is_number(step) and step > 0):
        raise _bad(f"parameters.{name}.step", "must be a number above 0")
    scale = space.get("scale", "linear")
    if scale not in ("linear", "log"):
        raise _bad(f"parameters.{name}.scale", "must be linear or log")
    if scale == "log" and low <= 0:
        raise _bad(f"parameters.{name}.min", "must be above 0 where scale is log")
    if method != "grid":
        return 1
    if step is None:
        raise _bad(f"parameters.{name}", "a grid needs values or a step")
    try:
        return int((high - low) / step) + 1
    except OverflowError as error:
        raise _bad(f"parameters.{name}.step", "makes more points than a grid may have; raise it") from error


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _bad(field: str, why: str) -> BadSpec:
    return BadSpec(why, field=f"{FIELD}.{field}")
