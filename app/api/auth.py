"""Who is calling, before anything else happens: a route that does not say who may call it answers nobody."""

from flask import Flask, current_app, g, request

from app.api.context import plane
from app.api.operation import operation_of
from app.domain.errors import CredentialsInvalid, CredentialsMissing
from app.services import keys


def register(app: Flask) -> None:
    app.before_request(authenticate)


def authenticate() -> None:
    """Puts the caller into the request's context. Raises Unauthenticated or Forbidden."""
    if request.url_rule is None:
        return  # no such route: 404 and 405 tell nothing that the API description does not
    operation = operation_of(current_app.view_functions[request.url_rule.endpoint])
    if operation.permission is None:
        return
    g.caller = keys.authenticate(plane().db, bearer_key())
    g.caller.require(operation.permission)


def bearer_key() -> str:
    header = request.headers.get("Authorization", "")
    if not header.strip():
        raise CredentialsMissing("send your API key in the header Authorization: Bearer <key>")
    scheme, _, key = header.partition(" ")
    if scheme.lower() != "bearer":
        raise CredentialsInvalid("the header Authorization must be: Bearer <key>")
    return key.strip()
