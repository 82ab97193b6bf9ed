"""What distinguishes jobs: fields in which their documents differ, which metric value is the best, means of groups."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from app.domain.lifecycle.checkpoints import best_rule
from app.domain.spec.metric_goals import Goal, goal_of
from app.domain.spec.metrics import EVAL_PREFIX
from app.domain.spec.model import CheckpointConfig


@dataclass(frozen=True, kw_only=True)
class FieldDifference:
    """A dotted field that is not the same in all documents; ``values`` has one per document, None where absent."""

    field: str
    values: tuple[Any, ...]


@dataclass(frozen=True, kw_only=True)
class JobGroup:
    """Jobs that have the same value of a label, by their places; ``value`` is None for those without the label."""

    value: str | None
    places: tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class Spread:
    """Of the finite values of a group."""

    count: int
    mean: float
    low: float
    high: float


def groups_by(labels: Sequence[Mapping[str, str]], key: str) -> list[JobGroup]:
    """The groups by value, those without the label last."""
    found: dict[str | None, list[int]] = {}
    for place, each in enumerate(labels):
        found.setdefault(each.get(key), []).append(place)
    ordered = sorted(found.items(), key=lambda item: (item[0] is None, item[0] or ""))
    return [JobGroup(value=value, places=tuple(places)) for value, places in ordered]


def spread_of(values: Sequence[float | None]) -> Spread | None:
    """None where no value is finite."""
    finite = [value for value in values if value is not None and math.isfinite(value)]
    if not finite:
        return None
    return Spread(count=len(finite), mean=math.fsum(finite) / len(finite), low=min(finite), high=max(finite))


def document_differences(documents: Sequence[Mapping[str, Any]]) -> list[FieldDifference]:
    """The fields that are not the same in all documents, by name."""
    flat = [dict(_fields(document)) for document in documents]
    names = sorted({name for each in flat for name in each})
    rows = (FieldDifference(field=name, values=tuple(each.get(name) for each in flat)) for name in names)
    return [row for row in rows if not all(_same(value, row.values[0]) for value in row.values)]


def goal_in(settings: Sequence[CheckpointConfig], metric: str) -> Goal | None:
    """Whether low or high values are better: as jobs that choose their best checkpoint by it say, or by its name.

    None where neither says so, or jobs contradict each other.
    """
    rules = [best_rule(each, "") for each in settings if each.metric_for_best_model]
    greater = {greater for name, greater in rules if metric in (name, f"{EVAL_PREFIX}{name}")}
    if not greater:
        return goal_of(metric)
    if len(greater) > 1:
        return None
    return "maximize" if greater.pop() else "minimize"


def best_of(values: Sequence[float], goal: Goal | None) -> float | None:
    """The best of the finite values; None without a goal, or without such values."""
    finite = [value for value in values if math.isfinite(value)]
    if goal is None or not finite:
        return None
    return max(finite) if goal == "maximize" else min(finite)


def differences_to_first(values: Sequence[float | None]) -> list[float | None]:
    """Each value minus the first; None where one of them is missing or not finite."""
    first = values[0]
    return [None if value is None or first is None else _finite(value - first) for value in values]


def _fields(value: object, path: str = "") -> Iterator[tuple[str, object]]:
    """(dotted field, value) without what is null or empty, which means the same as absent.

    A list of plain values is one value; the parts of other lists are numbered, as in error messages.
    """
    if isinstance(value, Mapping):
        items: list[tuple[object, object]] = list(value.items())
    elif isinstance(value, list | tuple) and any(isinstance(each, Mapping | list | tuple) for each in value):
        items = list(enumerate(value))
    else:
        if value is not None and value != []:
            yield path, value
        return
    for name, inner in items:
        yield from _fields(inner, f"{path}.{name}" if path else str(name))


def _same(one: object, other: object) -> bool:
    """Equal, where true is not 1."""
    return one == other and isinstance(one, bool) == isinstance(other, bool)


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
