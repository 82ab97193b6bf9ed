"""What API keys have asked of models: requests and tokens by day, model and key."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any

from sqlalchemy import ColumnElement, Select, func, literal, select, tuple_
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.exc import DataError, IntegrityError
from sqlalchemy.orm import Session

from app.database.engine import Database
from app.domain.errors import InvalidRequest
from app.models import ModelUsage
from app.security.permissions import Caller
from app.services.access import projects
from app.services.requests.pagination import COUNT_LIMIT, Page, PageRequest

KEY, MODEL, DAY = "key", "model", "day"
GROUPS = (DAY, MODEL, KEY)
ORDERS = (DAY,)
_IDENTITY = ("day", "key_id", "model", "project")
_COUNTS = ("requests", "failures", "prompt_tokens", "completion_tokens")
_ROWS_AT_ONCE = 500  # below SQLite's limit of parameters
_OF_THE_ROW = (DataError, IntegrityError, OverflowError, ValueError)  # writing it again fails again
logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class UsageKey:
    """``model`` as requests name it; ``day`` in UTC."""

    day: date
    key_id: str
    model: str
    project: str
    service_id: str


@dataclass(frozen=True, kw_only=True)
class UsageCounts:
    """``failures``: of the requests, those that were answered with an error."""

    requests: int = 0
    failures: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0


@dataclass(frozen=True, kw_only=True)
class UsageRow:
    """Sums; what they are not grouped by is None."""

    project: str
    day: date | None
    model: str | None
    key_id: str | None
    requests: int
    failures: int
    prompt_tokens: int
    completion_tokens: int


def add(db: Database, counts: Mapping[UsageKey, UsageCounts]) -> None:
    """Add to what is stored, in one transaction; a row that the database can't take is left out."""
    rows = _rows(counts)
    if not rows:
        return
    with db.write() as session:
        for begin in range(0, len(rows), _ROWS_AT_ONCE):
            _add_or_drop(session, rows[begin : begin + _ROWS_AT_ONCE])


def page(session: Session, caller: Caller, filters: Mapping[str, Any], request: PageRequest) -> Page[UsageRow]:
    """Sums of each project, by the names in ``filters["group"]``, any of GROUPS.

    Further filters are ``project``, and ``since`` and ``until``, the first and the last day. The only order is by the
    groups, days first. Raises NotFound for a project of others, and InvalidRequest for days in the wrong order.
    """
    groups = [name for name in GROUPS if name in filters.get("group", ())]
    key = [*(_COLUMNS[name] for name in groups), ModelUsage.project]
    sums = [func.sum(getattr(ModelUsage, name)).label(name) for name in _COUNTS]
    query = _filtered(session, caller, filters, select(*key, *sums).group_by(*key))
    total = session.scalar(select(func.count()).select_from(query.limit(COUNT_LIMIT + 1).subquery())) or 0
    rows = session.execute(_after(query, key, groups, request).limit(request.size + 1)).all()
    shown = [row._asdict() for row in rows[: request.size]]
    last = _key_of(shown[-1], key) if len(rows) > len(shown) else None
    return Page(
        items=[_shown(row) for row in shown],
        next_after=last,
        total_count=min(total, COUNT_LIMIT),
        total_count_capped=total > COUNT_LIMIT,
    )


def _add_or_drop(session: Session, rows: list[dict[str, Any]]) -> None:
    """One row that can't be written must not keep the others from it: they are written one by one then."""
    try:
        with session.begin_nested():
            _add_rows(session, rows)
    except _OF_THE_ROW as error:
        if len(rows) > 1:
            for row in rows:
                _add_or_drop(session, [row])
        else:
            logger.error("usage of key %s is dropped: %s", rows[0]["key_id"], type(error).__name__)  # noqa: TRY400


def _add_rows(session: Session, rows: list[dict[str, Any]]) -> None:
    insert: Any = postgresql.insert if session.get_bind().dialect.name == "postgresql" else sqlite.insert
    new = insert(ModelUsage).values(rows)
    sums = {name: getattr(ModelUsage, name) + getattr(new.excluded, name) for name in _COUNTS}
    changed = {**sums, "service_id": new.excluded.service_id}
    session.execute(new.on_conflict_do_update(index_elements=list(_IDENTITY), set_=changed))


_COLUMNS: Mapping[str, Any] = {DAY: ModelUsage.day, MODEL: ModelUsage.model, KEY: ModelUsage.key_id}


def _rows(counts: Mapping[UsageKey, UsageCounts]) -> list[dict[str, Any]]:
    """A row for each identity: a service may have replaced another one within the time of ``counts``.

    Sorted, so that processes that write at the same time lock rows in the same order.
    """
    found: dict[tuple[Any, ...], dict[str, Any]] = {}
    for key, count in counts.items():
        identity = {name: getattr(key, name) for name in _IDENTITY}
        row = found.setdefault(tuple(identity.values()), {**identity, **dict.fromkeys(_COUNTS, 0)})
        row["service_id"] = key.service_id
        for name in _COUNTS:
            row[name] += getattr(count, name)
    return [found[identity] for identity in sorted(found)]


def _filtered(session: Session, caller: Caller, filters: Mapping[str, Any], query: Select[Any]) -> Select[Any]:
    if "project" in filters:
        projects.visible(session, caller, filters["project"])
        query = query.where(ModelUsage.project == filters["project"])
    if caller.project is not None:
        query = query.where(ModelUsage.project == caller.project)
    since, until = filters.get("since"), filters.get("until")
    if since is not None and until is not None and until < since:
        raise InvalidRequest(f"until ({until}) is before since ({since}); exchange them", field="until")
    if since is not None:
        query = query.where(ModelUsage.day >= since)
    if until is not None:
        query = query.where(ModelUsage.day <= until)
    return query


def _after(
    query: Select[Any], key: Sequence[ColumnElement[Any]], groups: Sequence[str], request: PageRequest
) -> Select[Any]:
    is_descending = request.order.startswith("-")
    ordered = query.order_by(*(column.desc() if is_descending else column.asc() for column in key))
    if request.after is None:
        return ordered
    values = [date.fromisoformat(each) if at == 0 and DAY in groups else each for at, each in enumerate(request.after)]
    last = tuple_(*(literal(value, column.type) for value, column in zip(values, key, strict=True)))
    return ordered.where(tuple_(*key) < last if is_descending else tuple_(*key) > last)


def _key_of(row: Mapping[str, Any], key: Sequence[Any]) -> tuple[str, ...]:
    """The row's key, as texts."""
    return tuple(str(row[column.key]) for column in key)


def _shown(row: Mapping[str, Any]) -> UsageRow:
    counts: dict[str, Any] = {name: int(row[name]) for name in _COUNTS}
    return UsageRow(
        project=row["project"], day=row.get("day"), model=row.get("model"), key_id=row.get("key_id"), **counts
    )
