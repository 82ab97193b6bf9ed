"""Authentication and authorization before each request; every route must declare its permission."""

from collections.abc import Iterator
from contextlib import contextmanager

from flask import Flask, current_app, g, request

from app.domain.errors import CredentialsInvalid, LimitExceeded
from app.domain.spec.locations.hosts import holder_of
from app.http import denied
from app.http.context import backend, dialect, plane
from app.http.idempotency import may_replay
from app.http.operation import operation_of
from app.security.key_cache import KeyCache
from app.security.permissions import Caller
from app.services.access import api_keys, projects

PROJECT_HEADER = "X-Project"


def register(app: Flask) -> None:
    app.before_request(authenticate)


def authenticate() -> None:
    """Set the caller in the request context. Raises Unauthenticated, LimitExceeded, NotFound or Forbidden."""
    if request.url_rule is None:
        return  # no such route: 404 and 405 reveal nothing beyond the OpenAPI document
    operation = operation_of(current_app.view_functions[request.url_rule.endpoint])
    if operation.permission is None:
        return
    # A stored reply to the same request is returned before the transaction that rechecks the key.
    rechecks = operation.rechecks_key and not may_replay()
    g.caller = _authenticated(backend().key_cache if rechecks else None)
    if g.caller is not api_keys.ADMINISTRATOR:  # a command line that asks its own process
        limit = "rate limit exceeded for this key; retry after retry_after seconds"
        backend().limits.requests_of_key.check(g.caller.key_id, message=limit)
    if PROJECT_HEADER in request.headers:
        g.caller = projects.enter(plane().db, g.caller, request.headers[PROJECT_HEADER].strip())
    g.caller.require(operation.permission)
    g.caller = dialect().entered(plane().db, g.caller)


def _authenticated(key_cache: KeyCache | None) -> Caller:
    with wrong_keys_limited():
        return dialect().caller(plane().db, key_cache)


@contextmanager
def wrong_keys_limited() -> Iterator[None]:
    """Limits failed authentications per address. Raises LimitExceeded.

    Valid keys from the same address are not affected: many callers may share an address.
    """
    try:
        yield
    except CredentialsInvalid as error:
        limit = "too many failed authentications from this address; retry after retry_after seconds"
        try:
            holder = holder_of(request.remote_addr or "")
            backend().limits.failed_logins_of_address.check(f"address:{holder}", message=limit)
        except LimitExceeded:
            denied.note(error)  # audited like the others, although the response differs
            raise
        raise
