"""Lists in pages that stay put while rows are added: a page begins after a key, never at a number."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

from sqlalchemy import Select, func, literal, literal_column, select, tuple_
from sqlalchemy.orm import Session

COUNT_LIMIT = 10_000

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class PageRequest:
    """``order`` names an entry of the list's orders, ``-`` in front reverses it; ``after`` is the last row's key."""

    size: int
    order: str
    after: tuple[Any, ...] | None = None


@dataclass(frozen=True, kw_only=True)
class Page(Generic[T]):
    items: Sequence[T]
    next_after: tuple[Any, ...] | None
    total_count: int
    total_count_capped: bool


# Name of an order → its columns; attributes of models and expressions have no type in common.
Orders = Mapping[str, tuple[Any, ...]]


def page_of(session: Session, query: Select[Any], orders: Orders, request: PageRequest) -> Page[Any]:
    """One page of the rows of ``query``; each order is columns whose values together name one row."""
    key = orders[request.order.removeprefix("-")]
    # Labelled, or a column that is also one of the row's would be there twice under one name.
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

    They are found in indexes alone: those in the order of the list or those of a filter. Where few rows fit, the
    former could have to be read to the end, and planners, who don't know where in the order those rows are, take it.
    ``few``: so many are likely not exceeded; then they are looked for only once. ``counted``: as many rows, but
    without what only the order needs.
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
    # What is deleted this very moment is left out.
    return replace(page, items=[found[row_id] for row_id in page.items if row_id in found])


def _found_first(keyed: Select[Any], key_length: int, bound: int, request: PageRequest) -> Select[Any]:
    """Sorted only then, and with how many they are in all; of more than ``bound`` it would be any of them."""
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
    """Up to one more than the limit. Without the rows' content, which an index alone can often do."""
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
