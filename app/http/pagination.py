"""Pages on the wire: opaque signed tokens that belong to one list, one order and one set of filters."""

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

_NOT_OF_THE_LIST = {"page_token", "page_size"}


def page_request(query: Mapping[str, Any]) -> PageRequest:
    """The page that a list query asks for. Raises InvalidRequest for a token that was not made for this list."""
    token = query["page_token"]
    return PageRequest(
        size=query["page_size"], order=query["order_by"], after=_opened(token, query["order_by"]) if token else None
    )


def page_data(items: str, schema: Schema, page: Page[Any], query: Mapping[str, Any]) -> dict[str, Any]:
    """The answer of a list."""
    data = {
        items: schema.dump(page.items, many=True),
        "next_page_token": next_page_token(page, query),
        "total_count": page.total_count,
    }
    return {**data, "total_count_capped": True} if page.total_count_capped else data


def next_page_token(page: Page[Any], query: Mapping[str, Any]) -> str:
    """What gets the page after this one; empty when it is the last."""
    return _sealed(page.next_after, query["order_by"]) if page.next_after is not None else ""


def _sealed(after: tuple[Any, ...], order: str) -> str:
    return _serializer(order).dumps([_to_wire(value) for value in after])


def _opened(token: str, order: str) -> tuple[Any, ...]:
    try:
        return tuple(_from_wire(value) for value in _serializer(order).loads(token))
    except BadData as error:
        raise InvalidRequest(
            "the page_token is not one of this list with these filters and this order; "
            "take next_page_token from the page before, or leave it out for the first page",
            field="page_token",
        ) from error


def _serializer(order: str) -> URLSafeSerializer:
    """Signs for this list alone: the salt says which one, so a token of another list has a wrong signature."""
    filters = sorted((k, v) for k, v in request.args.items(multi=True) if k not in _NOT_OF_THE_LIST | {"order_by"})
    # The last part of the endpoint is the resource, whichever base path it was asked under.
    resource = [(request.endpoint or "").rpartition(".")[2], request.view_args, caller().project, order, filters]
    return URLSafeSerializer(
        backend().settings.security.secret_key,
        salt=f"page-token-3:{json.dumps(resource)}",
        signer_kwargs={"key_derivation": "hmac", "digest_method": hashlib.sha256},
    )


_TO_WIRE: dict[type, Callable[[Any], Any]] = {datetime: lambda moment: {"at": moment.isoformat()}}


def _to_wire(value: Any) -> Any:
    return _TO_WIRE.get(type(value), lambda same: same)(value)


def _from_wire(value: Any) -> Any:
    return datetime.fromisoformat(value["at"]) if isinstance(value, dict) else value
