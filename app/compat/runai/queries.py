"""How lists of workloads are asked for: conditions as texts, an order, and a place to begin at."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from marshmallow import Schema, fields, validate

from app.compat.runai.measurements import KINDS
from app.domain.errors import InvalidRequest
from app.schemas.queries import QueryFlag, QueryMoment, QueryTexts, QueryWhole, one_of
from app.schemas.strict_fields import Text, says

FIELDS = (
    "type", "name", "clusterId", "projectId", "projectName", "departmentId", "departmentName", "createdAt",
    "submittedBy", "phase", "completedAt", "phaseUpdatedAt", "category", "priorityClassName",
    "totalRunningTimeSeconds",
)  # fmt: skip
# Of those that are not among KINDS nothing is ever known here.
METRIC_TYPES = (
    *KINDS, "CPU_LIMIT_CORES", "CPU_MEMORY_LIMIT_BYTES", "NVLINK_BANDWIDTH_TOTAL",
)  # fmt: skip
_CONDITION = re.compile(r"([A-Za-z]+)(==|!=|<=|>=|=@|!@|=\^|=\$)(.+)", re.DOTALL)
_HOLDS: dict[str, Callable[[str, str], bool]] = {
    "==": lambda found, wanted: found == wanted,
    "!=": lambda found, wanted: found != wanted,
    "=@": lambda found, wanted: wanted in found,
    "!@": lambda found, wanted: wanted not in found,
    "=^": str.startswith,
    "=$": str.endswith,
}
_SIZES: dict[str, Callable[[Any, Any], bool]] = {
    "<=": lambda found, wanted: found <= wanted,
    ">=": lambda found, wanted: found >= wanted,
}
Row = Mapping[str, Any]


class CountQuerySchema(Schema):
    filterBy = QueryTexts(  # noqa: N815  (the name on the wire)
        Text(longest=512),
        load_default=list,
        **says("FIELD, one of == != <= >= =@ !@ =^ =$, and a value"),
    )
    search = Text(longest=128, load_default="", **says("A part of the name"))
    deleted = QueryFlag(load_default=False, **says("true gives none: what is deleted is not told"))


class WorkloadsQuerySchema(CountQuerySchema):
    offset = QueryWhole(0, 10_000, load_default=0)
    limit = QueryWhole(1, 500, load_default=50)
    sortOrder = one_of(("asc", "desc"))  # noqa: N815
    sortBy = one_of(FIELDS)  # noqa: N815


class MeasurementsQuerySchema(Schema):
    metricType = QueryTexts(  # noqa: N815
        fields.String(validate=validate.OneOf(METRIC_TYPES)), required=True, **says("What to measure")
    )
    start = QueryMoment(required=True)
    end = QueryMoment(required=True)
    numberOfSamples = QueryWhole(0, 1000, load_default=20)  # noqa: N815


def chosen(rows: Iterable[Row], query: Mapping[str, Any]) -> Iterator[Row]:
    """Those for which every condition holds. Raises InvalidRequest."""
    conditions = [_condition(text) for text in query["filterBy"]]
    if query["deleted"]:
        return iter(())
    return (
        row for row in rows if query["search"] in row["name"] and all(condition(row) for condition in conditions)
    )  # fmt: skip


def ordered(rows: Iterable[Row], query: Mapping[str, Any]) -> Iterable[Row]:
    """`rows`: the newest first."""
    field = query.get("sortBy", "createdAt")
    descending = query.get("sortOrder", "asc" if "sortBy" in query else "desc") == "desc"
    if field == "createdAt" and descending:
        return rows
    return sorted(rows, key=lambda row: (row[field] is not None, row[field]), reverse=descending)


def _condition(text: str) -> Callable[[Row], bool]:
    found = _CONDITION.fullmatch(text)
    if found is None or found[1] not in FIELDS:
        raise InvalidRequest(
            f"{text[:64]!r} is no condition such as phase==Running; fields: {', '.join(FIELDS)}", field="filterBy"
        )
    field, how, wanted = found.groups()
    if how in _HOLDS:
        return lambda row: _HOLDS[how](_text(row[field]), wanted)
    return lambda row: _sized(row[field], how, wanted)


def _text(value: Any) -> str:
    return "" if value is None else str(value)


def _sized(value: Any, how: str, wanted: str) -> bool:
    """Numbers by their size, everything else, times too, by its text."""
    if value is None:
        return False
    if isinstance(value, int | float):
        try:
            return _SIZES[how](value, float(wanted))
        except ValueError:
            return False
    return _SIZES[how](str(value), wanted)
