"""Who is calling, before anything else happens: a route that does not say who may call it answers nobody."""

from collections.abc import Iterator
from contextlib import contextmanager

from flask import Flask, current_app, g, request

from app.domain.errors import CredentialsInvalid, LimitExceeded
from app.domain.spec.locations.hosts import holder_of
from app.http import denied
from app.http.context import backend, dialect, plane
from app.http.idempotency import HEADER
from app.http.operation import operation_of
from app.security.known_keys import KnownKeys
from app.security.permissions import Caller
from app.services.access import projects

PROJECT_HEADER = "X-Project"


def register(app: Flask) -> None:
    app.before_request(authenticate)


def authenticate() -> None:
    """Puts the caller into the request's context. Raises Unauthenticated, LimitExceeded, NotFound or Forbidden."""
    if request.url_rule is None:
        return  # no such route: 404 and 405 tell nothing that the API description does not
    operation = operation_of(current_app.view_functions[request.url_rule.endpoint])
    if operation.permission is None:
        return
    # An earlier answer to the same request is given before its transaction begins.
    asks_again = operation.rechecks_key and HEADER not in request.headers
    g.caller = _known(backend().known_keys if asks_again else None)
    limit = "this key makes more requests than it may; wait as long as retry_after says"
    backend().limits.requests_of_key.check(g.caller.key_id, message=limit)
    if PROJECT_HEADER in request.headers:
        g.caller = projects.enter(plane().db, g.caller, request.headers[PROJECT_HEADER].strip())
    g.caller.require(operation.permission)
    g.caller = dialect().entered(plane().db, g.caller)


def _known(known_keys: KnownKeys | None) -> Caller:
    with wrong_keys_counted():
        return dialect().caller(plane().db, known_keys)


@contextmanager
def wrong_keys_counted() -> Iterator[None]:
    """What is found out here about keys may not be tried without end. Raises LimitExceeded.

    A good key from the same address goes on: many callers may share one.
    """
    try:
        yield
    except CredentialsInvalid as error:
        limit = "too many requests with wrong keys come from this address; wait as long as retry_after says"
        try:
            holder = holder_of(request.remote_addr or "")
            backend().limits.wrong_keys_of_address.check(f"address:{holder}", message=limit)
        except LimitExceeded:
            denied.note(error)  # counted like the others, though it is answered differently
            raise
        raise
