"""Pagination on the wire: opaque signed page tokens, each valid for one list, order and set of filters."""

import base64
import hashlib
import hmac
import json
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

from flask import request
from marshmallow import Schema

from app.domain.errors import InvalidRequest
from app.http.context import backend, caller
from app.services.requests.pagination import Page, PageRequest

_SIGNATURE_BYTES = 16
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
    payload = json.dumps([_to_wire(value) for value in after], separators=(",", ":")).encode()
    return base64.urlsafe_b64encode(_signature(payload, order) + payload).decode().rstrip("=")


def _opened(token: str, order: str) -> tuple[Any, ...]:
    try:
        raw = base64.b64decode(token + "=" * (-len(token) % 4), altchars=b"-_", validate=True)
        signature, payload = raw[:_SIGNATURE_BYTES], raw[_SIGNATURE_BYTES:]
        if not hmac.compare_digest(signature, _signature(payload, order)):
            raise ValueError("signature")
        return tuple(_from_wire(value) for value in json.loads(payload))
    except ValueError as error:
        raise InvalidRequest(
            "the page_token was not issued for this list with these filters and this order; "
            "use next_page_token of the previous page, or omit it for the first page",
            field="page_token",
        ) from error


def _signature(payload: bytes, order: str) -> bytes:
    filters = sorted((k, v) for k, v in request.args.items(multi=True) if k not in _PAGE_PARAMETERS | {"order_by"})
    # The endpoint's last part names the resource regardless of the base path.
    resource = [(request.endpoint or "").rpartition(".")[2], request.view_args, caller().project, order, filters]
    key = hashlib.sha256(b"page-token-2:" + backend().settings.security.secret_key.encode()).digest()
    return hmac.digest(key, json.dumps(resource).encode() + payload, "sha256")[:_SIGNATURE_BYTES]


_TO_WIRE: dict[type, Callable[[Any], Any]] = {datetime: lambda moment: {"at": moment.isoformat()}}


def _to_wire(value: Any) -> Any:
    return _TO_WIRE.get(type(value), lambda same: same)(value)


def _from_wire(value: Any) -> Any:
    return datetime.fromisoformat(value["at"]) if isinstance(value, dict) else value
