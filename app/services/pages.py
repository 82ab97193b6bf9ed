"""Lists in pages that stay put while rows are added: a page begins after a key, never at a number."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
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
    descending = request.order.startswith("-")
    ordered = query.order_by(*(column.desc() if descending else column.asc() for column in key))
    if request.after is not None:
        last = tuple_(*(literal(v, c.type) for v, c in zip(request.after, key, strict=True)))
        ordered = ordered.where(tuple_(*key) < last if descending else tuple_(*key) > last)
    # Labelled, or a column that is also one of the row's would be there twice under one name.
    keyed = ordered.add_columns(*(column.label(f"page_key_{i}") for i, column in enumerate(key)))
    rows = session.execute(keyed.limit(request.size + 1)).all()
    shown = rows[: request.size]
    # Counted without the rows' content, which an index alone can often do.
    one: Select[Any] = query.with_only_columns(literal_column("1"), maintain_column_froms=True)
    total = session.scalar(select(func.count()).select_from(one.limit(COUNT_LIMIT + 1).subquery())) or 0
    return Page(
        items=[row[0] for row in shown],
        next_after=tuple(shown[-1][-len(key) :]) if len(rows) > len(shown) else None,
        total_count=min(total, COUNT_LIMIT),
        total_count_capped=total > COUNT_LIMIT,
    )
