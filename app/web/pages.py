"""Renders pages and parts of pages, and what an action answers with."""

import gzip
import time
from typing import Any

from flask import Response, g, render_template, request, url_for

from app.http.context import backend
from app.http.envelope import Problem
from app.security.permissions import Caller, Permission
from app.web import assets, cookies, formatting, forms

HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; "
    "connect-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'",
    "Vary": "HX-Request, Cookie, Accept-Encoding",
    # With no-referrer, browsers send forms with `Origin: null`.
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
}
LEAST_PACKED = 2048

# Label, endpoint, and the permission without which it is not shown.
SECTIONS = (
    ("Overview", "web_overview.overview", Permission.VIEW),
    ("Jobs", "web_jobs.jobs", Permission.VIEW),
    ("Sweeps", "web_sweeps.sweeps", Permission.VIEW),
    ("Evaluations", "web_evaluations.evaluations", Permission.VIEW),
    ("Nodes", "web_nodes.nodes", Permission.VIEW),
    ("Shares", "web_shares.shares", Permission.VIEW),
    ("Submit", "web_submit.submit", Permission.MANAGE),
    ("Admin", "web_admin.admin", Permission.MANAGE),
)
# Pages that belong to a section under another name.
_OF_JOBS = (
    *("web_job", "web_job_access", "web_job_actions", "web_job_results", "web_job_terminal"),
    *("web_curves", "web_log", "web_compare"),
)


def is_partial() -> bool:
    """Whether a script of the page asks, which puts the answer into it."""
    return request.headers.get("HX-Request") == "true"


def page(template: str, status: int = 200, **values: Any) -> Response:
    """A whole page; `layout.html` says which blocks a template fills."""
    response = _rendered(template, status, values)
    if cookies.notice():
        cookies.drop_notice(response)
    return response


def part(template: str, status: int = 200, **values: Any) -> Response:
    """A part of a page, which replaces the one there is."""
    return _rendered(template, status, values)


def done(message: str, to: str) -> Response:
    """The answer to an action: the browser goes to ``to``, a URL of ours, where the message is shown once."""
    response = Response(status=200 if is_partial() else 303)
    response.headers["HX-Redirect" if is_partial() else "Location"] = to
    cookies.set_notice(response, message)
    return response


def may_connect(response: Response, address: str) -> Response:
    """Let scripts of this page connect to this address, too, and to all below it."""
    policy = HEADERS["Content-Security-Policy"].replace("connect-src 'self'", f"connect-src 'self' {address}")
    response.headers["Content-Security-Policy"] = policy
    return response


def redirected(to: str) -> Response:
    """To ``to``, a URL of ours, by a GET."""
    response = Response(status=303)
    response.headers["Location"] = to
    return response


def problem_page(problem: Problem) -> Response:
    return _rendered("problem.html", problem.status, {"problem": problem})


def problem_part(problem: Problem) -> Response:
    """A problem of an action or a part of a page, beside what there is."""
    response = _rendered("problem_notice.html", problem.status, {"problem": problem})
    response.headers["HX-Retarget"], response.headers["HX-Reswap"] = "#notices", "beforeend"
    return response


def _rendered(template: str, status: int, values: dict[str, Any]) -> Response:
    caller: Caller | None = g.get("caller")
    common = {
        "me": g.get("signed_in"),
        "caller": caller,
        "may": caller.may if caller is not None else _nothing,
        "Permission": Permission,
        "sections": SECTIONS,
        "section": "web_jobs" if request.blueprint in _OF_JOBS else request.blueprint or "",
        "csrf": forms.token() if "session_secret" in g else "",
        "notice": cookies.notice(),
        "provider": _provider_name(),
        "asset": asset_url,
        "formatting": formatting,
        "made": int(time.time() * 1000),
    }
    html = render_template(template, **common, **values).encode()
    packs = len(html) > LEAST_PACKED and request.accept_encodings["gzip"] > 0
    response = Response(gzip.compress(html, 3, mtime=0) if packs else html, status, mimetype="text/html")
    response.headers.update(HEADERS)
    if packs:
        response.headers["Content-Encoding"] = "gzip"
    return response


def asset_url(name: str) -> str:
    return url_for("web_assets.asset", version=assets.version(), name=name)


def _provider_name() -> str:
    """What the sign-in page calls the identity provider; empty without one."""
    settings = backend().settings.oidc
    return settings.label if settings.issuer else ""


def _nothing(_: Permission) -> bool:
    return False
