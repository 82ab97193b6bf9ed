"""GPU-hours as a table: a line for each project, a column for each month."""

from collections.abc import Sequence
from dataclasses import dataclass

from app.services.queues.gpu_hours import GpuHours


@dataclass(frozen=True, kw_only=True)
class HoursRow:
    """``hours``: of each month of the table."""

    project: str
    hours: Sequence[float]

    @property
    def total(self) -> float:
        return sum(self.hours)


@dataclass(frozen=True, kw_only=True)
class HoursTable:
    """``months``: the oldest first."""

    months: Sequence[str]
    rows: Sequence[HoursRow]

    @property
    def totals(self) -> list[float]:
        return [sum(column) for column in zip(*(row.hours for row in self.rows), strict=True)]


def hours_table(found: Sequence[GpuHours]) -> HoursTable:
    hours = {(each.project or "", each.month or ""): each.gpu_hours for each in found}
    months = sorted({month for _, month in hours})
    names = sorted({project for project, _ in hours})
    rows = [HoursRow(project=name, hours=[hours.get((name, month), 0.0) for month in months]) for name in names]
    return HoursTable(months=months, rows=sorted(rows, key=lambda row: -row.total))
