"""Parameters of sweep files of Weights & Biases: values, and distributions that have an equal of ours."""

import math
import re
from collections.abc import Callable, Mapping
from typing import Any

_KEYS = ("value", "values", "min", "max", "q", "distribution")
_OF_VALUES = ("constant", "categorical")
_EXPONENT = re.compile(r"[-+]?\d+(\.\d*)?[eE][-+]?\d+", re.ASCII)


class NotTranslated(Exception):
    """What a file asks for and a sweep cannot do; begins with the key."""


def parameter(name: str, raw: object) -> dict[str, Any]:
    """A parameter of a sweep's document. Raises NotTranslated."""
    field = f"parameters.{name}"
    if "." in name:
        raise NotTranslated(f"{field}: dots stand for fields of a job document; use a name without them")
    if not isinstance(raw, Mapping):
        raise NotTranslated(f"{field}: must be a mapping with value, values, or min and max")
    if "parameters" in raw:
        raise NotTranslated(f"{field}.parameters: nested parameters have no translation; write them side by side")
    for key in raw:
        if key not in _KEYS:
            raise NotTranslated(f"{field}.{key}: has no translation; known: {', '.join(_KEYS)}")
    distribution = raw.get("distribution")
    if "value" in raw or "values" in raw:
        return _listed(raw, distribution, field)
    if distribution is None:
        ends = [raw.get("min"), raw.get("max")]
        distribution = "int_uniform" if all(type(end) is int for end in ends) else "uniform"
    if distribution not in _RANGES:
        known = ", ".join((*_OF_VALUES, *map(str, _RANGES)))
        raise NotTranslated(f"{field}.distribution: {distribution!r:.80} has no translation; known: {known}")
    if "q" in raw and not str(distribution).startswith("q_"):
        raise NotTranslated(f"{field}.q: counts for q_uniform only; leave it out")
    return _RANGES[distribution](raw, field)


def whole(value: object, field: str, *, least: int = 1) -> int:
    """Raises NotTranslated for what is no whole number of at least so much."""
    if type(value) is not int or value < least:
        raise NotTranslated(f"{field}: {value!r:.80} must be a whole number, at least {least}")
    return value


def _listed(raw: Mapping[str, Any], distribution: object, field: str) -> dict[str, Any]:
    if distribution is not None and distribution not in _OF_VALUES:
        raise NotTranslated(f"{field}.distribution: {distribution!r:.80} has no values; give min and max")
    values = raw["values"] if "values" in raw else [raw["value"]]
    if not isinstance(values, list) or not values:
        raise NotTranslated(f"{field}.values: must be a list of values")
    for value in values:
        if not isinstance(value, bool | int | float | str):
            raise NotTranslated(f"{field}: {value!r:.80} must be a number, a text, true or false")
    return {"values": [_as_meant(value) for value in values]}


def _as_meant(value: Any) -> Any:  # noqa: ANN401 – a value of YAML
    """A number that YAML 1.1 reads as a text because it has an exponent but no dot, such as 1e-5."""
    return float(value) if isinstance(value, str) and _EXPONENT.fullmatch(value) else value


def _uniform(raw: Mapping[str, Any], field: str) -> dict[str, Any]:
    return {"type": "double", **_ends(raw, field)}


def _int_uniform(raw: Mapping[str, Any], field: str) -> dict[str, Any]:
    return {"type": "int", **_ends(raw, field)}


def _log_uniform_values(raw: Mapping[str, Any], field: str) -> dict[str, Any]:
    return {"type": "double", **_ends(raw, field), "scale": "log"}


def _log_uniform(raw: Mapping[str, Any], field: str) -> dict[str, Any]:
    """Its ends are exponents of e."""
    try:
        ends = {key: math.exp(value) for key, value in _ends(raw, field).items()}
    except OverflowError as error:
        raise NotTranslated(f"{field}: e to that power is too large; use log_uniform_values") from error
    return {"type": "double", **ends, "scale": "log"}


def _q_uniform(raw: Mapping[str, Any], field: str) -> dict[str, Any]:
    found = {**_ends(raw, field), "step": _number(raw.get("q", 1), f"{field}.q")}
    return {"type": "int" if all(value == int(value) for value in found.values()) else "double", **found}


_RANGES: dict[object, Callable[[Mapping[str, Any], str], dict[str, Any]]] = {
    "uniform": _uniform,
    "int_uniform": _int_uniform,
    "q_uniform": _q_uniform,
    "log_uniform": _log_uniform,
    "log_uniform_values": _log_uniform_values,
}


def _ends(raw: Mapping[str, Any], field: str) -> dict[str, Any]:
    return {key: _number(raw.get(key), f"{field}.{key}") for key in ("min", "max")}


def _number(value: object, field: str) -> float:
    """YAML reads 1e-5 as a text, which is meant as a number here."""
    try:
        found = float(value) if isinstance(value, str) else value
        if isinstance(found, int | float) and not isinstance(found, bool) and math.isfinite(found):
            return found
    except (OverflowError, ValueError):
        pass
    raise NotTranslated(f"{field}: {value!r:.80} must be a finite number")
