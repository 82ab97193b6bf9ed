"""Builds the whole Flask application: the native API, other vocabularies and the dashboard."""

from flask import Blueprint, Flask

from app import native
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
from app.http.context import Backend
from app.http.dialect import NATIVE, Dialect
from app.services.operations.data_dir import prepare_directory
from app.services.requests.control_plane import Rings
from app.web import blueprints as web
from app.web.dialect import WEB
from config.logging import configure_logging
from config.redaction import Redaction
from config.secrets import secrets_of
from config.settings import Settings, load_settings

FOREIGN: dict[Dialect, Blueprint] = {
    CYXWIZ: cyxwiz.blueprint,
    RUNAI: runai.blueprint,
    MODELARTS: modelarts.blueprint,
    OME: ome.blueprint,
    OPENAI: openai.blueprint,
}


DIALECTS = (NATIVE, *FOREIGN, WEB)


def from_environment() -> Flask:
    """The application of `trainyard api`, `flask` and other servers; `trainyard up` serves `app.late_application`."""
    settings = prepare_directory(load_settings())
    configure_logging(settings.log.level, process="api", redaction=Redaction(secrets_of(settings)))
    return create_app(settings)


def create_app(settings: Settings, *, db: Database | None = None, dispatcher: Rings | None = None) -> Flask:
    """The application for these settings; tests pass their own database and dispatcher."""
    return whole_app(settings, backend_of(settings, db=db, dispatcher=dispatcher))


def whole_app(settings: Settings, backend: Backend) -> Flask:
    """The application on this backend, whose dialects are DIALECTS."""
    app = native.native_app(settings, backend)
    for foreign, blueprint in FOREIGN.items():
        prefix = foreign.bases[0] if foreign.prefix is None else foreign.prefix
        app.register_blueprint(blueprint, url_prefix=prefix)
    if settings.web.enabled:
        app.register_blueprint(web.ROOT)
        for blueprint in web.BLUEPRINTS:
            app.register_blueprint(blueprint, url_prefix=WEB.bases[0])
    native.check_permissions(app)
    return app


def backend_of(settings: Settings, *, db: Database | None = None, dispatcher: Rings | None = None) -> Backend:
    """What the routes work with. It connects when it is first asked."""
    return native.backend_of(settings, db=db, dispatcher=dispatcher, others=(*FOREIGN, WEB))
