"""Signing in by an identity provider: the way to it, and the way back."""

import hmac
import time
from typing import Any

from flask import Blueprint, Response, request, url_for
from marshmallow import EXCLUDE, fields

from app.domain.errors import CredentialsInvalid, Forbidden, LimitExceeded, NotFound, TrainyardError, Unavailable
from app.http import denied
from app.http.auth import wrong_keys_limited
from app.http.context import backend, plane
from app.http.operation import operation
from app.schemas.documents import RequestSchema
from app.security.permissions import Permission
from app.security.role_rules import grant_of, values_of
from app.security.secrets import SecretKeyMissing
from app.services.access import web_sessions, web_users
from app.services.access.identity_provider import IdentityProvider, provider
from app.web import cookies
from app.web.pages import page, redirected
from app.web.routes.sign_in import SignInQuerySchema, within

blueprint = Blueprint("web_oidc", __name__)
_STATUS = {LimitExceeded: 429, Unavailable: 503, Forbidden: 403}


class CallbackSchema(RequestSchema):
    """What a provider sends back; it may add more."""

    class Meta:
        unknown = EXCLUDE

    of_form = True
    code = fields.String(load_default="")
    state = fields.String(load_default="")
    error = fields.String(load_default="")
    error_description = fields.String(load_default="")


@blueprint.get("/login/oidc")
@operation("Go to the identity provider", permission=None, query=SignInQuerySchema, media="html")
def start(query: dict[str, Any]) -> Response:
    wanted = within(query["next"])
    try:
        started = _provider().start(_redirect_uri())
    except Unavailable as error:
        return _failed(error, wanted)
    response = redirected(started.url)
    remembered = {
        # Browsers do not send the session's cookie on the way back.
        "session": cookies.session(),
        "state": started.state,
        "nonce": started.nonce,
        "verifier": started.verifier,
        "next": wanted,
        "at": time.time(),
    }
    cookies.set_sign_in(response, plane().box.seal(remembered))
    return response


@blueprint.get("/login/oidc/callback")
@operation("Come back from the identity provider", permission=None, query=CallbackSchema, media="html")
def finish(query: dict[str, Any]) -> Response:
    service, wanted = _provider(), ""
    try:
        with wrong_keys_limited():
            begun = _begun(query)
            wanted = begun["next"]
            identity = service.finish(
                query["code"], redirect_uri=_redirect_uri(), nonce=begun["nonce"], verifier=begun["verifier"]
            )
        rules = backend().settings.oidc
        values = values_of(identity.claims.get(rules.claim))
        grant = grant_of(rules.roles, values) if not identity.is_unverified else None
        who = web_users.enter(plane().db, plane().box, identity, grant, groups=values)
        who.require(Permission.VIEW)
    except (CredentialsInvalid, Forbidden, LimitExceeded, Unavailable) as error:
        if isinstance(error, CredentialsInvalid):
            denied.note(error)
        return _failed(error, wanted)
    web_sessions.end_of_browser(plane().db, begun.get("session", ""))
    secret = web_sessions.sign_in(
        plane().db, who, address=request.remote_addr or "", user_agent=request.user_agent.string
    )
    # A page, and no redirect: after one from another site, browsers would not send a cookie that is Strict.
    response = page("sign_in/signed_in.html", to=wanted or url_for("web_overview.overview"))
    cookies.set_session(response, secret, seconds=backend().settings.web.session_seconds)
    cookies.drop_sign_in(response)
    return response


@blueprint.get("/signed-out")
@operation("Offer to sign out at the identity provider", permission=None, media="html")
def signed_out() -> Response:
    """A link and no redirect: who signs out here may want to stay signed in elsewhere."""
    if cookies.session():  # not after signing out, which drops it
        return redirected(url_for("web_overview.overview"))
    address = _provider().sign_out_url(url_for("web_sign_in.sign_in", _external=True))
    if not address:
        return redirected(url_for("web_sign_in.sign_in"))
    return page("sign_in/signed_out.html", address=address)


def _begun(query: dict[str, Any]) -> dict[str, Any]:
    """The sign-in that this browser began. Raises CredentialsInvalid for the answer to another, or to none."""
    try:
        begun = plane().box.open(cookies.sign_in())
    except SecretKeyMissing:
        begun = {}
    is_of_it = hmac.compare_digest(str(begun.get("state", "")).encode(), query["state"].encode())
    if not begun or not is_of_it or time.time() - begun["at"] > cookies.SIGN_IN_SECONDS:
        raise CredentialsInvalid(
            "this sign-in has ended, began in another browser, or another one began since; sign in again"
        )
    if query["error"] or not query["code"]:
        why = query["error_description"] or query["error"] or "it sent no code"
        raise CredentialsInvalid(f"the identity provider refuses the sign-in: {why[:200]}")
    return begun


def _failed(error: TrainyardError, wanted: str) -> Response:
    response = page("sign_in/sign_in.html", _STATUS.get(type(error), 401), next=wanted, failure=error.message)
    cookies.drop_sign_in(response)
    return response


def _provider() -> IdentityProvider:
    settings = backend().settings.oidc
    if not settings.issuer:
        raise NotFound("no identity provider is configured; sign in with a key")
    return provider(settings)


def _redirect_uri() -> str:
    return url_for("web_oidc.finish", _external=True)
