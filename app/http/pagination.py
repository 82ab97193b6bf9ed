"""Pagination on the wire: opaque signed page tokens, each valid for one list, order and set of filters."""

import hashlib
import json
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

from flask import request
from itsdangerous import BadData, URLSafeSerializer
from marshmallow import Schema

from app.domain.errors import InvalidRequest
from app.http.context import backend, caller
from app.services.requests.pagination import Page, PageRequest

_PAGE_PARAMETERS = {"page_token", "page_size"}


def page_request(query: Mapping[str, Any]) -> PageRequest:
    """The requested page of a list query. Raises InvalidRequest for a token that was not issued for this list."""
    token = query["page_token"]
    return PageRequest(
        size=query["page_size"], order=query["order_by"], after=_opened(token, query["order_by"]) if token else None
    )


def page_data(items: str, schema: Schema, page: Page[Any], query: Mapping[str, Any]) -> dict[str, Any]:
    """The data of a list response."""
    data = {
        items: schema.dump(page.items, many=True),
        "next_page_token": next_page_token(page, query),
        "total_count": page.total_count,
    }
    return {**data, "total_count_capped": True} if page.total_count_capped else data


def next_page_token(page: Page[Any], query: Mapping[str, Any]) -> str:
    """The token of the next page; empty on the last page."""
    return _sealed(page.next_after, query["order_by"]) if page.next_after is not None else ""


def _sealed(after: tuple[Any, ...], order: str) -> str:
    return _serializer(order).dumps([_to_wire(value) for value in after])


def _opened(token: str, order: str) -> tuple[Any, ...]:
    try:
        return tuple(_from_wire(value) for value in _serializer(order).loads(token))
    except BadData as error:
        raise InvalidRequest(
            "the page_token was not issued for this list with these filters and this order; "
            "use next_page_token of the previous page, or omit it for the first page",
            field="page_token",
        ) from error


def _serializer(order: str) -> URLSafeSerializer:
    """Signs for this list only: the salt identifies it, so a token of another list has a wrong signature."""
    filters = sorted((k, v) for k, v in request.args.items(multi=True) if k not in _PAGE_PARAMETERS | {"order_by"})
    # The endpoint's last part names the resource regardless of the base path.
    resource = [(request.endpoint or "").rpartition(".")[2], request.view_args, caller().project, order, filters]
    return URLSafeSerializer(
        backend().settings.security.secret_key,
        salt=f"page-token-3:{json.dumps(resource)}",
        signer_kwargs={"key_derivation": "hmac", "digest_method": hashlib.sha256},
    )


_TO_WIRE: dict[type, Callable[[Any], Any]] = {datetime: lambda moment: {"at": moment.isoformat()}}


def _to_wire(value: object) -> object:
    return _TO_WIRE.get(type(value), lambda same: same)(value)


def _from_wire(value: object) -> object:
    return datetime.fromisoformat(value["at"]) if isinstance(value, dict) else value
