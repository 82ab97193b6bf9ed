"""How pages authenticate and fail: the caller is the one of the session's cookie, and problems are pages."""

from flask import Response, g, request, url_for

from app.database.engine import Database
from app.domain.errors import CredentialsMissing
from app.http.context import backend
from app.http.dialect import Dialect
from app.http.envelope import Problem
from app.security.key_cache import KeyCache
from app.security.permissions import Caller
from app.services.access import web_sessions
from app.web import cookies
from app.web.forms import is_within
from app.web.pages import is_partial, page, problem_page, problem_part, redirected

BASE = "/ui"
_ENDED = "You are signed out: the sign-in has ended, or its key is no longer valid."


class Web(Dialect):
    name = "web"
    title = "Trainyard's dashboard"
    about = "Pages for people. Their form is no interface: programs use the native API."
    bases = (BASE,)

    def caller(self, db: Database, known: KeyCache | None) -> Caller:  # noqa: ARG002 – sessions are always read
        secret = cookies.session()
        if not secret:
            raise CredentialsMissing("sign in with an API key")
        found = web_sessions.find(db, secret, web_sessions.lifetime(backend().settings), is_used=not _is_background())
        g.signed_in, g.session_secret = found, secret
        return found.caller

    def failure(self, problem: Problem) -> Response:
        if not backend().settings.web.enabled:  # there are no pages, and no parts of one
            return super().failure(problem)
        if problem.status == 401:
            return _to_sign_in()
        return problem_part(problem) if is_partial() else problem_page(problem)

    def describes(self, path: str) -> bool:  # noqa: ARG002 – no description has them
        return False


WEB = Web()


def _came_by_a_link() -> bool:
    """From a page of another site, such as one of a gateway: the browser leaves out a cookie that is Strict, and sends
    it once a page of ours leads on.
    """
    sent = request.headers
    return sent.get("Sec-Fetch-Site") == "cross-site" and sent.get("Sec-Fetch-Dest") == "document"


def _is_background() -> bool:
    """Whether a script asks by itself: such requests do not extend a session."""
    return request.headers.get("X-Background") == "true" or "text/event-stream" in request.headers.get("Accept", "")


def _to_sign_in() -> Response:
    wanted = request.full_path.rstrip("?") if request.method == "GET" and not is_partial() else ""
    if is_within(wanted) and _came_by_a_link() and not cookies.session():
        return page("sign_in/arrived.html", to=wanted)
    login = url_for("web_sign_in.sign_in", next=wanted if is_within(wanted) else None)
    if is_partial():
        response = Response(status=401)
        response.headers["HX-Redirect"] = login
    else:
        response = redirected(login)
    if cookies.session() and not _is_background():
        cookies.set_notice(response, _ENDED)
    return response
