"""Lists of pages: their query, and the links to their first and next page."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from flask import request, url_for

from app.http.pagination import next_page_token
from app.schemas.queries import MAX_PAGE_SIZE, ListQuerySchema, QueryWhole
from app.services.requests.pagination import Page

ON_A_PAGE = 50


class WebListSchema(ListQuerySchema):
    """The filters of a list come from a form, which also sends the fields that are left empty."""

    of_form = True
    page_size = QueryWhole(1, MAX_PAGE_SIZE, load_default=ON_A_PAGE)


@dataclass(frozen=True, kw_only=True)
class Listed:
    """One page of a list. ``first_url`` is empty on the first page, ``next_url`` on the last."""

    items: Sequence[Any]
    total: int
    capped: bool
    first_url: str
    next_url: str


def listed(page: Page[Any], query: Mapping[str, Any]) -> Listed:
    token = next_page_token(page, query)
    return Listed(
        items=page.items,
        total=page.total_count,
        capped=page.total_count_capped,
        first_url=_url_at("") if query["page_token"] else "",
        next_url=_url_at(token) if token else "",
    )


def _url_at(token: str) -> str:
    """The URL of this request at another page."""
    # With the empty filters as well: a token is of the very query that it was made for.
    query: dict[str, Any] = {**request.args.to_dict(flat=False), "page_token": token or None}
    path: dict[str, Any] = request.view_args or {}
    return url_for(request.endpoint or "", **path, **query)
