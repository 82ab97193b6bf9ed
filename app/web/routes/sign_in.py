"""Signing in with a key, signing out, and the sign-ins of a key."""

from typing import Any

from flask import Blueprint, Response, g, request, url_for
from marshmallow import fields

from app.domain.errors import InvalidRequest, LimitExceeded, Unauthenticated
from app.http import denied
from app.http.auth import wrong_keys_limited
from app.http.context import backend, caller, plane
from app.http.operation import operation
from app.schemas.documents import RequestSchema
from app.security.permissions import Permission
from app.services.access import api_keys, person_keys, web_sessions
from app.web import cookies
from app.web.forms import form, is_within
from app.web.pages import done, page, redirected

blueprint = Blueprint("web_sign_in", __name__)


class SignInQuerySchema(RequestSchema):
    next = fields.String(load_default="")


class SignInFormSchema(RequestSchema):
    key = fields.String(load_default="")
    next = fields.String(load_default="")


@blueprint.get("/login")
@operation("Show the form to sign in", permission=None, query=SignInQuerySchema, media="html")
def sign_in(query: dict[str, Any]) -> Response:
    return page("sign_in/sign_in.html", next=within(query["next"]), failure="")


@blueprint.post("/login")
@operation("Sign in with a key", permission=None, media="html", **form(SignInFormSchema))
def sign_in_with_key(body: dict[str, Any]) -> Response:
    settings, wanted = backend().settings, within(body["next"])
    try:
        with wrong_keys_limited():
            found = api_keys.authenticate(plane().db, body["key"].strip())
        found.require(Permission.VIEW)
    except (LimitExceeded, Unauthenticated) as error:
        if isinstance(error, Unauthenticated):
            denied.note(error)
        status = 429 if isinstance(error, LimitExceeded) else 401
        return page("sign_in/sign_in.html", status, next=wanted, failure=error.message)
    web_sessions.end_of_browser(plane().db, cookies.session())
    secret = web_sessions.sign_in(
        plane().db, found, address=request.remote_addr or "", user_agent=request.user_agent.string
    )
    response = redirected(wanted or url_for("web_overview.overview"))
    cookies.set_session(response, secret, seconds=settings.web.session_seconds)
    return response


@blueprint.post("/logout")
@operation("Sign out", permission=Permission.VIEW, media="html", **form())
def sign_out(body: dict[str, Any]) -> Response:  # noqa: ARG001 – it has no fields
    with plane().db.read() as session:
        is_person = bool(backend().settings.oidc.issuer) and person_keys.is_of_sign_ins(session, caller().key_id)
    web_sessions.end(plane().db, caller(), g.signed_in.session_id)
    response = done("Signed out.", url_for("web_oidc.signed_out" if is_person else "web_sign_in.sign_in"))
    cookies.drop_session(response)
    return response


@blueprint.get("/sessions")
@operation("List the sign-ins of the key", permission=Permission.VIEW, media="html")
def sessions() -> Response:
    found = web_sessions.of_key(plane().db, caller(), web_sessions.lifetime(backend().settings))
    return page("sign_in/sessions.html", sessions=found)


@blueprint.post("/sessions/<session_id>/end")
@operation("End a sign-in of the key", permission=Permission.VIEW, media="html", **form())
def end_session(session_id: str, body: dict[str, Any]) -> Response:  # noqa: ARG001 – it has no fields
    web_sessions.end(plane().db, caller(), session_id)
    return done("The sign-in has ended.", url_for("web_sign_in.sessions"))


def within(wanted: str) -> str:
    """The path to continue at after the sign-in. Raises InvalidRequest for one that is not of the dashboard."""
    if wanted and not is_within(wanted):
        raise InvalidRequest("must be a path of the dashboard, which begins with /ui", field="next")
    return wanted
