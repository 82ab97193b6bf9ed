"""The declaration of resource methods; parsing, idempotency, the envelope and the OpenAPI document derive from it."""

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, cast

from flask import Response
from marshmallow import Schema
from sqlalchemy.exc import IntegrityError

from app.domain.errors import Conflict, LimitExceeded, NotFound, StorageQuotaExceeded
from app.http import idempotency
from app.http.context import backend, dialect
from app.http.envelope import Reply, warning_headers
from app.http.query import read_query
from app.http.request_body import JsonBody, Reader
from app.schemas.queries import NoQuerySchema
from app.security.permissions import Permission
from app.services.requests.idempotency import AlreadyAnswered

Answer = Reply | Response | Mapping[str, Any]  # a plain mapping: data of a Reply with status 200
View = Callable[..., Answer]


@dataclass(frozen=True, kw_only=True)
class Operation:
    """``permission`` None: no authentication. ``items`` names the list in a page of ``answer``. ``headers``: additional
    request headers and their descriptions. ``also``: further success statuses and their answers. ``reader`` parses
    bodies, and ``body`` describes them. ``rechecks_key``: its transaction verifies the key, so authentication may use
    a cached one. ``refuses``: error statuses beyond the usual ones. ``takes``: the documented Content-Type of bodies,
    whatever others the ``reader`` accepts. ``runs_again``: a request that a client's library repeats without a key is
    carried out again, and gets the stored answer only if that fails: the equal request before it may be one whose
    effect was undone since. ``remembers`` False: no answer is stored, so a repeated request is carried out again.
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
    media: Literal[
        "json",
        "events",
        "json or events",
        "json or picture",
        "json or markdown",
        "json or csv",
        "run file",
        "bytes",
        "html",
        "text",
        "document",
    ] = "json"
    headers: Mapping[str, str] = field(default_factory=dict)
    also: Mapping[int, type[Schema]] = field(default_factory=dict)
    rechecks_key: bool = False
    refuses: tuple[int, ...] = ()
    takes: str = "application/json"
    runs_again: bool = False
    remembers: bool = True


def operation(
    summary: str,
    *,
    permission: Permission | None,
    query: type[Schema] = NoQuerySchema,
    body: type[Schema] | None = None,
    reader: Reader | None = None,
    answer: type[Schema] | None = None,
    **more: Any,
) -> Callable[[View], Callable[..., Response]]:
    """Decorates a resource method, which receives the path's values and, if declared, ``query`` and ``body``."""
    schema = body() if body is not None else None
    described = Operation(
        summary=summary,
        permission=permission,
        query=query(),
        body=schema,
        reader=reader or (JsonBody(schema) if schema is not None else None),
        answer=answer() if answer is not None else None,
        **more,
    )

    def declare(view: View) -> Callable[..., Response]:
        @functools.wraps(view)
        def resource(**values: Any) -> Response:
            if any("\0" in value for value in values.values()):
                raise NotFound("no such resource")  # PostgreSQL cannot store NUL, so no name contains it
            parameters = read_query(described.query)
            if query is not NoQuerySchema:
                values["query"] = parameters
            if described.reader is None:
                return _respond(view(**values))
            return _respond_once(described, described.reader, view, values)

        cast("Any", resource).operation = described
        return resource

    return declare


def operation_of(view: Callable[..., object]) -> Operation:
    """The view's declaration. Raises TypeError for a view without one: such a route must not exist."""
    described = getattr(view, "operation", None)
    if not isinstance(described, Operation):
        raise TypeError(f"{view.__module__}.{view.__qualname__} does not declare an operation")
    return described


def _respond_once(described: Operation, reader: Reader, view: View, values: dict[str, Any]) -> Response:
    limit = backend().settings.api.max_nesting
    document = reader.read(optional=described.body_optional, max_nesting=limit)
    # Not for anonymous callers: one could receive another's response.
    if described.permission is not None and described.remembers:
        earlier = idempotency.begin(document, runs_again=described.runs_again)
        if earlier is not None:
            return earlier
    try:
        return _respond(view(**values, body=reader.load(document)))
    except (AlreadyAnswered, Conflict, LimitExceeded, StorageQuotaExceeded, IntegrityError):
        # A concurrent request with the same key may have committed first and caused this error.
        if (earlier := idempotency.replay()) is None:
            raise
        return earlier


def _respond(answer: Answer) -> Response:
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
