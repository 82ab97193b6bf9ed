"""What every resource method declares about itself; parsing, idempotency, the envelope and the API description
follow from it.
"""

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, cast

from flask import Response
from marshmallow import Schema
from sqlalchemy.exc import IntegrityError

from app.domain.errors import Conflict, LimitExceeded, NotFound
from app.http import idempotency
from app.http.context import backend, dialect
from app.http.envelope import Reply, warning_headers
from app.http.query import read_query
from app.http.request_body import JsonBody, Reader
from app.schemas.queries import NoQuerySchema
from app.security.permissions import Permission
from app.services.requests.idempotency import AlreadyAnswered

View = Callable[..., Any]


@dataclass(frozen=True, kw_only=True)
class Operation:
    """``permission`` None is open to everybody. ``items`` names the list in a page of ``answer``. ``headers`` are those
    of its own that the request may have, with what they mean. ``also`` are further good statuses with their answers.
    ``reader`` reads bodies, and ``body`` describes them. ``rechecks_key``: its transaction asks whether the key still
    is good, so authentication may remember that it was. ``refuses`` are bad statuses that nobody would expect of it.
    ``takes`` is the Content-Type of bodies that is described, whatever others the ``reader`` reads.
    """

    summary: str
    permission: Permission | None
    query: Schema
    body: Schema | None = None
    reader: Reader | None = None
    body_optional: bool = False
    answer: Schema | None = None
    items: str | None = None
    status: int = 200
    media: Literal["json", "events", "json or events", "bytes", "html", "text", "document"] = "json"
    headers: Mapping[str, str] = field(default_factory=dict)
    also: Mapping[int, type[Schema]] = field(default_factory=dict)
    rechecks_key: bool = False
    refuses: tuple[int, ...] = ()
    takes: str = "application/json"


def operation(
    summary: str,
    *,
    permission: Permission | None,
    query: type[Schema] = NoQuerySchema,
    body: type[Schema] | None = None,
    reader: Reader | None = None,
    answer: type[Schema] | None = None,
    **more: Any,
) -> Callable[[View], View]:
    """Declares a resource method; it gets the path's values, ``query`` when it declares one, and ``body``."""
    schema = body() if body is not None else None
    described = Operation(
        summary=summary, permission=permission, query=query(), body=schema,
        reader=reader or (JsonBody(schema) if schema is not None else None),
        answer=answer() if answer is not None else None, **more,
    )  # fmt: skip

    def declare(view: View) -> View:
        @functools.wraps(view)
        def resource(**values: Any) -> Response:
            if any("\0" in value for value in values.values()):
                raise NotFound("no such resource")  # PostgreSQL has no such text, and nothing is named so
            parameters = read_query(described.query)
            if query is not NoQuerySchema:
                values["query"] = parameters
            if described.reader is None:
                return _respond(view(**values))
            return _respond_once(described, described.reader, view, values)

        cast("Any", resource).operation = described
        return resource

    return declare


def operation_of(view: View) -> Operation:
    """Raises TypeError for a view that declares nothing: such a route must not exist."""
    described = getattr(view, "operation", None)
    if not isinstance(described, Operation):
        raise TypeError(f"{view.__module__}.{view.__qualname__} does not declare an operation")
    return described


def _respond_once(described: Operation, reader: Reader, view: View, values: dict[str, Any]) -> Response:
    limit = backend().settings.api.max_nesting
    document = reader.read(optional=described.body_optional, max_nesting=limit)
    # Of those whom nobody knows, one could be told what another one was answered.
    earlier = idempotency.begin(document) if described.permission is not None else None
    if earlier is not None:
        return earlier
    try:
        return _respond(view(**values, body=reader.load(document)))
    except (AlreadyAnswered, Conflict, LimitExceeded, IntegrityError):
        # Perhaps the same request was faster, and what it did is all that this one was refused for.
        if (earlier := idempotency.replay()) is None:
            raise
        return earlier


def _respond(answer: Any) -> Response:
    if isinstance(answer, Response):
        return answer
    reply = answer if isinstance(answer, Reply) else Reply(answer)
    if reply.status == 204:
        return Response(status=204)
    here = dialect()
    response = here.written(here.body_of(reply), reply.status)
    if reply.location is not None:
        response.headers["Location"] = reply.location
    for name, value in warning_headers(reply.warnings):
        response.headers.add(name, value)
    return response
