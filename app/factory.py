"""Builds the Flask application: control plane, blueprints and error handlers. Connections are opened lazily."""

from flask import Blueprint, Flask, Response
from werkzeug.middleware.proxy_fix import ProxyFix

from app.api import (
    access,
    audit,
    cluster,
    comparisons,
    data,
    evaluations,
    events,
    health,
    inference,
    interactive,
    job_verbs,
    jobs,
    logs,
    metrics,
    not_built,
    openapi,
    prometheus,
    results,
    services,
    sweep_figures,
    sweeps,
    tables,
    webhooks,
)
from app.compat.cyxwiz import routes as cyxwiz
from app.compat.cyxwiz.dialect import CYXWIZ
from app.compat.modelarts import routes as modelarts
from app.compat.modelarts.dialect import MODELARTS
from app.compat.ome.api import routes as ome
from app.compat.ome.dialect import OME
from app.compat.openai import routes as openai
from app.compat.openai.dialect import OPENAI
from app.compat.runai import routes as runai
from app.compat.runai.dialect import RUNAI
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
from app.security.rate_limits import LocalBuckets, RateLimit, RateLimits, SharedBuckets
from app.services.operations.control_plane import control_plane
from app.services.operations.data_dir import prepare_directory
from app.services.requests.control_plane import ControlPlane, Rings
from app.services.requests.wakeups import Dispatcher
from app.web import blueprints as web
from app.web.dialect import WEB
from config.logging import configure_logging
from config.metrics_directory import inherited_multiprocess_directory
from config.redaction import Redaction
from config.secrets import secrets_of
from config.settings import Settings, load_settings

# Each is served under every native base path.
BLUEPRINTS = (
    jobs.blueprint,
    job_verbs.blueprint,
    events.blueprint,
    metrics.blueprint,
    logs.blueprint,
    results.blueprint,
    interactive.blueprint,
    cluster.blueprint,
    comparisons.blueprint,
    data.blueprint,
    access.blueprint,
    audit.blueprint,
    evaluations.blueprint,
    inference.blueprint,
    services.blueprint,
    sweeps.blueprint,
    sweep_figures.blueprint,
    tables.blueprint,
    webhooks.blueprint,
    openapi.blueprint,
    not_built.blueprint,
)
FOREIGN: dict[Dialect, Blueprint] = {
    CYXWIZ: cyxwiz.blueprint,
    RUNAI: runai.blueprint,
    MODELARTS: modelarts.blueprint,
    OME: ome.blueprint,
    OPENAI: openai.blueprint,
}
HEADERS = {
    "Cache-Control": "private, no-store",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
}


def from_environment() -> Flask:
    """The application that gunicorn serves."""
    settings = prepare_directory(load_settings())
    configure_logging(settings.log.level, process="api", redaction=Redaction(secrets_of(settings)))
    return create_app(settings)


def create_app(
    settings: Settings, *, db: Database | None = None, dispatcher: Rings | None = None, administrator_key: str = ""
) -> Flask:
    """The application for these settings; tests pass their own database and dispatcher.

    ``administrator_key``: a key of this application alone, which grants full access as the actor `cli`.
    """
    app = Flask("app", static_folder=None, template_folder="web/templates")
    app.config[ADMINISTRATOR_KEY] = administrator_key
    app.config.update(MAX_CONTENT_LENGTH=settings.api.max_body_bytes, MAX_FORM_PARTS=1)
    # Exact paths only: no redirects to a similar path.
    app.url_map.strict_slashes, app.url_map.merge_slashes = True, False
    app.url_map.redirect_defaults = False
    app.extensions[EXTENSION] = backend_of(settings, db=db, dispatcher=dispatcher)
    prometheus.register(app, directory=inherited_multiprocess_directory())
    errors.register(app)
    hosts.register(app)
    auth.register(app)
    app.after_request(_finish)
    app.register_blueprint(health.blueprint)
    app.register_blueprint(prometheus.blueprint)
    for number, base in enumerate(NATIVE.bases):
        for blueprint in BLUEPRINTS:
            name = blueprint.name if number == 0 else f"{blueprint.name}_{number}"
            app.register_blueprint(blueprint, url_prefix=base, name=name)
    for foreign, blueprint in FOREIGN.items():
        prefix = foreign.bases[0] if foreign.prefix is None else foreign.prefix
        app.register_blueprint(blueprint, url_prefix=prefix)
    if settings.web.enabled:
        app.register_blueprint(web.ROOT)
        for blueprint in web.BLUEPRINTS:
            app.register_blueprint(blueprint, url_prefix=WEB.bases[0])
    app.wsgi_app = RequestIdMiddleware(app.wsgi_app)  # type: ignore[method-assign]  # Flask's documented way
    if settings.api.proxies:
        app.wsgi_app = ProxyFix(app.wsgi_app, x_for=settings.api.proxies, x_proto=settings.api.proxies)  # type: ignore[method-assign]  # the same
    for view in app.view_functions.values():
        operation_of(view)  # every route must declare its permission
    return app


def backend_of(settings: Settings, *, db: Database | None = None, dispatcher: Rings | None = None) -> Backend:
    """What the routes work with. It connects when it is first asked."""
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
        dialects=(NATIVE, *FOREIGN, WEB),
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
    for name, value in HEADERS.items():
        response.headers.setdefault(name, value)
    response.headers["X-Request-ID"] = request_id()
    dialect().finish(response)
    return response
