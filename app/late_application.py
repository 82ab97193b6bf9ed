"""The application of `trainyard up`: the native API, and from the first request for it on the rest, too.

Other vocabularies and the dashboard are a third of what an API process imports, and many installations ask for none
of them. `trainyard api` loads everything at once: an upgrade replaces its files while it runs, and modules of two
releases do not fit together.
"""

import importlib
import logging
import threading
import time
from collections.abc import Iterable
from dataclasses import replace
from wsgiref.types import StartResponse, WSGIEnvironment

from flask import Flask, Response, request

from app import native
from app.api import prometheus
from app.host.imports import uncollected_imports
from app.http.context import Backend
from app.http.envelope import Problem
from app.http.errors import failure
from app.services.operations.data_dir import prepare_directory
from config.logging import configure_logging
from config.redaction import Redaction
from config.secrets import secrets_of
from config.settings import Settings, load_settings

logger = logging.getLogger(__name__)
RETRY_SECONDS = 30
_NOT_LOADED = "trainyard.not_loaded"  # in the environment of a request whose application could not be made


class ApplicationNotLoaded(Exception):
    """The whole application could not be made; its cause is in the log."""


class LateApplication:
    """Requests for native paths go to the native application, all others to the whole one, which the first makes.

    Both count and limit together: they have one control plane, one set of slots, and one set of counters.
    """

    def __init__(self, settings: Settings, backend: Backend) -> None:
        self._settings, self._backend = settings, backend
        self._native = native.native_app(settings, backend)
        self._native.before_request(_refuse)
        self._sections = frozenset(_section(rule.rule) for rule in self._native.url_map.iter_rules())
        self._whole: Flask | None = None
        self._next_try = 0.0  # of the monotonic clock
        self._failed = False
        self._making = threading.Lock()

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        try:
            application = self.application_for(environ.get("PATH_INFO", ""))
        except ApplicationNotLoaded:
            environ[_NOT_LOADED] = True
            application = self._native
        return application(environ, start_response)

    def application_for(self, path: str) -> Flask:
        """The application that answers requests for the path, also where it has no such route.

        Raises ApplicationNotLoaded.
        """
        return self._native if _section(path) in self._sections else self._made()

    def _made(self) -> Flask:
        with self._making:  # other requests wait for the same application
            if self._whole is None:
                self._whole = self._loaded()
            return self._whole

    def _loaded(self) -> Flask:
        """The whole application. After a failure it is tried again at the earliest after RETRY_SECONDS."""
        if time.monotonic() < self._next_try:
            raise ApplicationNotLoaded
        try:
            with uncollected_imports(freeze=False):  # other threads answer requests
                factory = importlib.import_module("app.factory")
            whole: Flask = factory.whole_app(self._settings, replace(self._backend, dialects=factory.DIALECTS))
        except Exception as error:
            if not self._failed:  # once: anyone may ask for unknown paths
                logger.exception("other vocabularies and the dashboard could not be loaded; restart `trainyard up`")
            self._failed, self._next_try = True, time.monotonic() + RETRY_SECONDS
            raise ApplicationNotLoaded from error
        whole.extensions[prometheus.EXTENSION] = self._native.extensions[prometheus.EXTENSION]
        return whole


def from_environment() -> LateApplication:
    """The application of a process of the API."""
    settings = prepare_directory(load_settings())
    configure_logging(settings.log.level, process="api", redaction=Redaction(secrets_of(settings)))
    return LateApplication(settings, native.backend_of(settings))


def _refuse() -> Response | None:
    """In the native terms: the vocabulary of the path is not loaded."""
    if _NOT_LOADED not in request.environ:
        return None
    why = "this part of the API could not be loaded; the operator finds why in api.log, and restarts `trainyard up`"
    return failure(Problem(503, "UNAVAILABLE", why, retry_after=RETRY_SECONDS))


def _section(path: str) -> str:
    """The first two parts of a path: `/v1/jobs` of `/v1/jobs/ID`. No other vocabulary has one of the native ones."""
    return "/".join(("/" + path.lstrip("/")).split("/", 3)[:3])
