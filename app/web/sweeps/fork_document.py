"""The document of a fork in its form: all that a fork may change, so that what is taken out of it is gone."""

from collections.abc import Mapping
from typing import Any

from app.domain.sweeps.spec import NONE, Budget

_BOUNDS = ("max_trials", "max_device_hours", "max_seconds", "target", "patience")


def shown(beginning: Mapping[str, Any]) -> dict[str, Any]:
    """Without what is not set, which has no value that a person could write."""
    stopping = beginning["early_stopping"]
    return {
        **beginning,
        "method": _set(beginning["method"]),
        "early_stopping": {"name": NONE} if stopping["name"] == NONE else _set(stopping),
        "budget": _set(beginning["budget"]),
    }


def complete(given: Mapping[str, Any]) -> dict[str, Any]:
    """As `POST /v1/sweeps/{id}/fork` takes it, where a part that is not given stays as it is."""
    none: dict[str, Any] = {"labels": {}, "parameters": {}, "require": [], "method": {}, "early_stopping": {}}
    budget = {**dict.fromkeys(_BOUNDS), "parallel_trials": Budget.parallel_trials, "running": Budget.running}
    return {**none, **given, "budget": {**budget, **given.get("budget", {})}}


def _set(part: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in part.items() if value is not None}
