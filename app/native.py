"""Builds a Flask application of the native API: control plane, blueprints and error handlers.

Connections are opened lazily. Nothing of other vocabularies and of the dashboard is imported here: `--local` needs
neither.
"""

import importlib
from collections.abc import Callable, Sequence
from typing import Any

from flask import Blueprint, Flask, Response
from werkzeug.middleware.proxy_fix import ProxyFix
from werkzeug.routing import Rule

from app.api import health, prometheus
from app.database.engine import Database
from app.database.from_settings import open_database
from app.domain.token_bucket import Rate
from app.http import auth, errors, hosts
from app.http.context import EXTENSION, Backend, dialect
from app.http.dialect import ADMINISTRATOR_KEY, NATIVE, Dialect
from app.http.envelope import request_id
from app.http.operation import operation_of
from app.http.request_log import RequestIdMiddleware
from app.http.slots import Slots
from app.security.rate_limits import LocalBuckets, RateLimit, RateLimits
from app.security.shared_buckets import SharedBuckets
from app.services.operations.control_plane import control_plane
from app.services.requests.control_plane import ControlPlane, Rings
from app.services.requests.wakeups import Dispatcher
from config.metrics_directory import inherited_multiprocess_directory
from config.settings import Settings

# Of `app.api`, by name: each has a blueprint, which is served under every native base path.
MODULES = (
    "jobs",
    "job_verbs",
    "events",
    "metrics",
    "logs",
    "results",
    "interactive",
    "cluster",
    "comparisons",
    "data",
    "access",
    "audit",
    "evaluations",
    "inference",
    "services",
    "sweeps",
    "sweep_figures",
    "tables",
    "webhooks",
    "openapi",
    "not_built",
)
HEADERS = {
    "Cache-Control": "private, no-store",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
}


class _LateRule(Rule):
    """A route that compiles how its URLs are built when one is first built: most routes never need it, and to compile
    all of them takes as long as everything else of an application.

    Of werkzeug's own method; where that changes its name, routes are compiled at once again.
    """

    def _compile_builder(self, append_unknown: bool = True) -> Callable[..., tuple[str, str]]:  # noqa: FBT001, FBT002 – theirs
        compiled: list[Callable[..., tuple[str, str]]] = []

        def build(rule: Rule, /, *args: Any, **values: Any) -> tuple[str, str]:
            if not compiled:
                compiled.append(super(_LateRule, self)._compile_builder(append_unknown))
            return compiled[0](rule, *args, **values)

        return build


class _Application(Flask):
    url_rule_class = _LateRule


def native_app(
    settings: Settings, backend: Backend, *, administrator_key: str = "", modules: Sequence[str] = MODULES
) -> Flask:
    """An application of the native API, or of some of its modules.

    ``administrator_key``: a key of this application alone, which grants full access as the actor `cli`.
    """
    app = _Application("app", static_folder=None, template_folder="web/templates")
    app.config[ADMINISTRATOR_KEY] = administrator_key
    app.config.update(MAX_CONTENT_LENGTH=settings.api.max_body_bytes, MAX_FORM_PARTS=1)
    # Exact paths only: no redirects to a similar path.
    app.url_map.strict_slashes, app.url_map.merge_slashes = True, False
    app.url_map.redirect_defaults = False
    app.extensions[EXTENSION] = backend
    prometheus.register(app, directory=inherited_multiprocess_directory())
    errors.register(app)
    hosts.register(app)
    auth.register(app)
    app.after_request(_finish)
    app.register_blueprint(health.blueprint)
    app.register_blueprint(prometheus.blueprint)
    blueprints: list[Blueprint] = [importlib.import_module(f"app.api.{name}").blueprint for name in modules]
    for number, base in enumerate(NATIVE.bases):
        for blueprint in blueprints:
            name = blueprint.name if number == 0 else f"{blueprint.name}_{number}"
            app.register_blueprint(blueprint, url_prefix=base, name=name)
    app.wsgi_app = RequestIdMiddleware(app.wsgi_app)  # type: ignore[method-assign]  # Flask's documented way
    if settings.api.proxies:
        app.wsgi_app = ProxyFix(app.wsgi_app, x_for=settings.api.proxies, x_proto=settings.api.proxies)  # type: ignore[method-assign]  # the same
    check_permissions(app)
    return app


def check_permissions(app: Flask) -> None:
    """Every route must declare its permission."""
    for view in app.view_functions.values():
        operation_of(view)


def backend_of(
    settings: Settings, *, db: Database | None = None, dispatcher: Rings | None = None, others: tuple[Dialect, ...] = ()
) -> Backend:
    """What the routes work with; ``others``: dialects besides the native one. It connects when it is first asked."""
    shares = settings.thread_shares
    return Backend(
        plane=_control_plane(settings, db, dispatcher),
        settings=settings,
        streams=Slots(
            shares.streams,
            settings.api.max_streams_per_project or max(1, shares.streams * 2 // 3),
            what="streams",
            otherwise="retry later, or read without following",
        ),
        answers=Slots(
            shares.answers,
            settings.api.max_answers_per_project or max(1, shares.answers * 2 // 3),
            what="requests to models",
            otherwise="retry later, or ask a gateway itself",
        ),
        bodies=Slots(
            settings.api.threads,
            settings.api.max_bodies_per_project or max(1, settings.api.threads // 2),
            what="unfinished request bodies",
            otherwise="send them whole, and fewer at a time",
        ),
        viewers=Slots(
            shares.viewers,
            max(1, shares.viewers * 2 // 3),
            what="streams of the dashboard",
            otherwise="the page asks every few seconds instead",
        ),
        previews=Slots(
            shares.previews, max(1, shares.previews // 2), what="previews of data", otherwise="try again in a moment"
        ),
        openings=_slots_of_openings(shares.openings),
        limits=_rate_limits(settings),
        dialects=(NATIVE, *others),
    )


def _slots_of_openings(limit: int) -> Slots:
    """For requests that wait until a job's sandbox is open, which takes some seconds at worst."""
    what, otherwise = "places to wait for the sandbox of a job", "try again in a moment"
    return Slots(limit, max(1, limit // 2), what=what, otherwise=otherwise)


def _control_plane(settings: Settings, db: Database | None, dispatcher: Rings | None) -> ControlPlane:
    return control_plane(settings, db or open_database(settings.database), dispatcher or Dispatcher(settings))


def _rate_limits(settings: Settings) -> RateLimits:
    api, url = settings.api, settings.broker.url
    buckets = SharedBuckets(url) if url else LocalBuckets()
    return RateLimits(
        requests_of_key=RateLimit(Rate(api.rate_per_second, api.rate_burst), buckets),
        failed_logins_of_address=RateLimit(Rate(api.wrong_keys_per_second, api.wrong_keys_burst), buckets),
    )


def _finish(response: Response) -> Response:
    given = {name.lower() for name, _ in response.headers}
    response.headers.extend([(name, value) for name, value in HEADERS.items() if name.lower() not in given])
    response.headers["X-Request-ID"] = request_id()
    dialect().finish(response)
    return response
