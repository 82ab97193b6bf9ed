"""Query parameters of lists of workloads: filters, order and offset."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

from marshmallow import Schema, fields, validate

from app.compat.every_job import moment_of
from app.compat.runai.measurements import KINDS
from app.domain.errors import InvalidRequest
from app.schemas.queries import QueryFlag, QueryMoment, QueryTexts, QueryWhole, one_of
from app.schemas.strict_fields import Text, on_the_wire, says

FIELDS = (
    "type",
    "name",
    "clusterId",
    "projectId",
    "projectName",
    "departmentId",
    "departmentName",
    "createdAt",
    "submittedBy",
    "phase",
    "completedAt",
    "phaseUpdatedAt",
    "category",
    "priorityClassName",
    "totalRunningTimeSeconds",
)
# The types that are not among KINDS never have values.
METRIC_TYPES = (*KINDS, "CPU_LIMIT_CORES", "CPU_MEMORY_LIMIT_BYTES", "NVLINK_BANDWIDTH_TOTAL")
_CONDITION = re.compile(r"([A-Za-z]+)(==|!=|<=|>=|=@|!@|=\^|=\$)(.+)", re.DOTALL)
_HOLDS: dict[str, Callable[[str, str], bool]] = {
    "==": lambda found, value: found == value,
    "!=": lambda found, value: found != value,
    "=@": lambda found, value: value in found,
    "!@": lambda found, value: value not in found,
    "=^": str.startswith,
    "=$": str.endswith,
}
_TIMES = ("createdAt", "completedAt", "phaseUpdatedAt")
# Condition → filter of `services.jobs.listing`.
_FILTERS = {
    ("name", "=^"): "name",
    ("name", "=="): "name",
    ("name", "=@"): "name_contains",
    ("projectId", "=="): "project",
    ("projectName", "=="): "project",
}
_BOUNDS = {">=": ("created_after", -1), "<=": ("created_before", 1)}  # in milliseconds, as these filters are exclusive
_ORDERS = {"createdAt": "created_at", "name": "name"}
_SIZES: dict[str, Callable[[Any, Any], bool]] = {
    "<=": lambda found, value: found <= value,
    ">=": lambda found, value: found >= value,
}
Row = Mapping[str, Any]


class CountQuerySchema(Schema):
    filterBy = QueryTexts(  # noqa: N815  (the name on the wire)
        Text(longest=512), load_default=list, **says("FIELD, one of == != <= >= =@ !@ =^ =$, and a value")
    )
    search = Text(longest=128, load_default="", **says("Part of the name"))
    deleted = QueryFlag(load_default=False, **says("true returns nothing: deleted workloads are not listed"))


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


class FilterCondition(NamedTuple):
    """``how``: an operator; ``value``: a number, a time in the form of rows, or a string."""

    field: str
    how: str
    value: Any

    def holds(self, row: Row) -> bool:
        found = row[self.field]
        if self.how in _HOLDS:
            return _HOLDS[self.how]("" if found is None else str(found), self.value)
        return found is not None and _SIZES[self.how](found, self.value)


def conditions(texts: Sequence[str]) -> list[FilterCondition]:
    """Raises InvalidRequest."""
    return [_condition(text) for text in texts]


def narrowed(asked: Sequence[FilterCondition], search: str, statuses: Mapping[str, Sequence[str]]) -> dict[str, Any]:
    """Filters of `services.jobs.listing` that every selected job passes; they may pass others, too.

    ``statuses``: phase → states of the jobs that may be in it.
    """
    found: dict[str, Any] = {"name_contains": [search]} if search else {}
    for field, how, value in asked:
        if how == "==" and field == "phase":
            found.setdefault("status", statuses.get(value, ()))
        elif field == "createdAt" and how in _BOUNDS:
            name, one = _BOUNDS[how]
            found.setdefault(name, moment_of(round(datetime.fromisoformat(value).timestamp() * 1000) + one))
        elif filter_name := _FILTERS.get((field, how)):
            found.setdefault(filter_name, [value] if filter_name == "name_contains" else value)
    return found


def chosen(rows: Iterable[Row], asked: Sequence[FilterCondition], search: str) -> Iterator[Row]:
    """The rows that pass every condition."""
    return (row for row in rows if search in row["name"] and all(condition.holds(row) for condition in asked))


def native_order(query: Mapping[str, Any]) -> str | None:
    """The order of `services.jobs.listing` for the query; None where it has none."""
    name = _ORDERS.get(_sorted_by(query))
    return name and ("-" if _is_descending(query) else "") + name


def ordered(rows: Iterable[Row], query: Mapping[str, Any]) -> Iterable[Row]:
    """``rows`` are in the native order, if there is one."""
    if native_order(query) is not None:
        return rows
    field = _sorted_by(query)
    return sorted(rows, key=lambda row: (row[field] is not None, row[field]), reverse=_is_descending(query))


def _sorted_by(query: Mapping[str, Any]) -> str:
    return str(query.get("sortBy", "createdAt"))


def _is_descending(query: Mapping[str, Any]) -> bool:
    return bool(query.get("sortOrder", "asc" if "sortBy" in query else "desc") == "desc")


def _condition(text: str) -> FilterCondition:
    found = _CONDITION.fullmatch(text)
    if found is None or found[1] not in FIELDS:
        raise InvalidRequest(
            f"{text[:64]!r} is not a condition such as phase==Running; fields: {', '.join(FIELDS)}", field="filterBy"
        )
    field, how, value = found.groups()
    return FilterCondition(field, how, value if how in _HOLDS else _size(field, value))


def _size(field: str, value: str) -> float | str:
    """The value to compare with; all but numbers and times are strings."""
    try:
        if field == "totalRunningTimeSeconds":
            return float(value)
        if field in _TIMES:
            moment = datetime.fromisoformat(value.replace(" ", "+"))  # a + of a UTC offset that was not escaped
            return on_the_wire(moment if moment.tzinfo else moment.replace(tzinfo=UTC))
    except (ValueError, OverflowError) as error:
        wants = "a number of seconds" if field == "totalRunningTimeSeconds" else "a time such as 2026-01-31T00:00:00Z"
        raise InvalidRequest(f"{field} is compared with {wants}, not {value[:64]!r}", field="filterBy") from error
    return value
