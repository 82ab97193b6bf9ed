"""What suggestions and decisions of sweeps took, and what device time sweeps spared."""

import math
from collections.abc import Iterable, Iterator

from sqlalchemy import select
from sqlalchemy.orm import Session

from app.models import SweepCount
from app.security.permissions import Caller
from app.services.operations.measurements import Gauge, Histogram, Measurement, cumulative, seen
from app.services.sweeps.counts import BOUNDS_MS, Kind, bound_of

_SPARED = {Kind.BY_STOPPING: "stopping", Kind.BY_TRUNKS: "trunks"}


def of_counts(session: Session, caller: Caller) -> Iterator[Measurement]:
    """By project, also of sweeps that are deleted by now."""
    found: dict[str, list[SweepCount]] = {}
    for row in session.scalars(seen(select(SweepCount).order_by(SweepCount.project), SweepCount.project, caller)):
        found.setdefault(row.kind, []).append(row)
    for name, meaning, kind in (
        ("suggestion_seconds", "Time in which methods of sweeps computed values", Kind.SUGGESTION),
        ("decision_seconds", "Time from a measurement at a rung to what its sweep decided", Kind.DECISION),
    ):
        by_project: dict[str, list[SweepCount]] = {}
        for row in found.get(kind, ()):
            by_project.setdefault(row.project, []).append(row)
        values = [((project,), *_histogram(rows)) for project, rows in by_project.items()]
        yield Histogram(name=f"sweep_{name}", meaning=meaning, labels=("project",), values=values)
    yield Gauge(
        name="sweep_device_hours_spared",
        meaning="Device hours not used by trials that were stopped, or that began with another one's checkpoint",
        labels=("project", "by"),
        values=[((row.project, by), row.seconds / 3600) for kind, by in _SPARED.items() for row in found.get(kind, ())],
    )


def _histogram(rows: Iterable[SweepCount]) -> tuple[list[tuple[float, int]], float]:
    rows = list(rows)
    counted = {bound_of(row.up_to_ms): row.count for row in rows}
    bounds = [*map(bound_of, BOUNDS_MS), math.inf]
    return cumulative(counted, bounds), math.fsum(row.seconds for row in rows)
