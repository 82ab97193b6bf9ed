"""Keyset pagination: a page begins after a key, not at an offset, so that pages are stable while rows are added."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

from sqlalchemy import Select, func, literal, literal_column, select, tuple_
from sqlalchemy.orm import Session

COUNT_LIMIT = 10_000

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class PageRequest:
    """``order`` names an entry of the list's orders, a leading ``-`` reverses it; ``after`` is the last row's key."""

    size: int
    order: str
    after: tuple[Any, ...] | None = None


@dataclass(frozen=True, kw_only=True)
class Page(Generic[T]):
    items: Sequence[T]
    next_after: tuple[Any, ...] | None
    total_count: int
    total_count_capped: bool


# Name of an order → its columns; Any, since model attributes and expressions have no common type.
Orders = Mapping[str, tuple[Any, ...]]


def page_of(session: Session, query: Select[Any], orders: Orders, request: PageRequest) -> Page[Any]:
    """One page of the rows of ``query``; the columns of each order identify a row."""
    key = orders[request.order.removeprefix("-")]
    # Labelled, to avoid duplicate names with columns of the row.
    keyed = query.add_columns(*(column.label(f"page_key_{i}") for i, column in enumerate(key)))
    rows = session.execute(_next(keyed, key, request)).all()
    return _page(rows, key, _counted(session, query, COUNT_LIMIT), request)


def page_by_id(
    session: Session,
    model: type[Any],
    query: Select[Any],
    orders: Orders,
    request: PageRequest,
    *,
    counted: Select[Any] | None = None,
    few: int = 0,
) -> Page[Any]:
    """One page of the model's rows whose ids ``query`` selects, for tables of a million rows.

    Rows are found by indexes only: that of the order, or those of a filter. Where few rows match, the former might be
    read to its end, and the database's query planner, which does not know their positions, would choose it. ``few``: an
    upper bound that is likely not exceeded; the rows are then found in one query. ``counted``: a query for the same
    number of rows, without joins that only the order needs.
    """
    key = orders[request.order.removeprefix("-")]
    keyed = query.add_columns(*(column.label(f"page_key_{i}") for i, column in enumerate(key)))
    bound = max(few, COUNT_LIMIT)
    total = 0 if few else _counted(session, query if counted is None else counted, bound)
    rows: Sequence[Any] = []
    if few or 0 < total <= bound:
        rows = session.execute(_found_first(keyed, len(key), bound, request)).all()
        total = rows[0].total if rows else 0
    if not rows and request.after is not None:
        total = _counted(session, query, bound)
    if total > bound:
        rows = session.execute(_next(keyed, key, request)).all()
    page = _page(rows, key, total, request)
    found = {row.id: row for row in session.scalars(select(model).where(model.id.in_(page.items)))} if rows else {}
    # Concurrently deleted rows are left out.
    return replace(page, items=[found[row_id] for row_id in page.items if row_id in found])


def _found_first(keyed: Select[Any], key_length: int, bound: int, request: PageRequest) -> Select[Any]:
    """Find up to ``bound`` rows first, then sort them, with their total; beyond ``bound`` the rows are arbitrary."""
    found = keyed.limit(bound + 1).cte("found")
    total = select(func.count()).select_from(found).scalar_subquery().label("total")
    columns = list(found.c)
    return _next(select(columns[0], total, *columns[1:]), columns[-key_length:], request)


def _next(query: Select[Any], key: Sequence[Any], request: PageRequest) -> Select[Any]:
    """The rows of the page, and one more if there are any."""
    descending = request.order.startswith("-")
    ordered = query.order_by(*(column.desc() if descending else column.asc() for column in key))
    if request.after is not None:
        last = tuple_(*(literal(v, c.type) for v, c in zip(request.after, key, strict=True)))
        ordered = ordered.where(tuple_(*key) < last if descending else tuple_(*key) > last)
    return ordered.limit(request.size + 1)


def _counted(session: Session, query: Select[Any], limit: int) -> int:
    """Number of rows, up to one more than the limit; without their columns, so that an index often suffices."""
    one: Select[Any] = query.with_only_columns(literal_column("1"), maintain_column_froms=True)
    return session.scalar(select(func.count()).select_from(one.limit(limit + 1).subquery())) or 0


def _page(rows: Sequence[Any], key: Sequence[Any], total: int, request: PageRequest) -> Page[Any]:
    shown = rows[: request.size]
    return Page(
        items=[row[0] for row in shown],
        next_after=tuple(shown[-1][-len(key) :]) if len(rows) > len(shown) else None,
        total_count=min(total, COUNT_LIMIT),
        total_count_capped=total > COUNT_LIMIT,
    )
