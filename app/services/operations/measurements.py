"""What is measured for Prometheus: kinds of measurements, and whose a caller sees."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Select
from sqlalchemy.orm import InstrumentedAttribute

from app.security.permissions import Caller

Labels = tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Gauge:
    """A gauge with a value for each combination of labels."""

    name: str
    meaning: str
    labels: Labels = ()
    values: Sequence[tuple[Labels, float]]


@dataclass(frozen=True, kw_only=True)
class Histogram:
    """A histogram: (labels, [(upper bound, cumulative count)], sum)."""

    name: str
    meaning: str
    labels: Labels
    values: Sequence[tuple[Labels, Sequence[tuple[float, int]], float]]


Measurement = Gauge | Histogram


def cumulative(counted: Mapping[float, int], bounds: Iterable[float]) -> list[tuple[float, int]]:
    """Of each bound how many values are at most so large."""
    up_to, total = [], 0
    for bound in bounds:
        total += counted.get(bound, 0)
        up_to.append((bound, total))
    return up_to


def seen(
    query: Select[*tuple[Any, ...]], project: InstrumentedAttribute[str], caller: Caller
) -> Select[*tuple[Any, ...]]:
    """The query for what the caller sees: all projects, or its own."""
    return query if caller.project is None else query.where(project == caller.project)
