"""The application that gunicorn serves: the native API, and the rest from the first request for it on.

Other vocabularies and the dashboard are a third of what an API process imports, and many installations ask for none
of them.
"""

import importlib
import threading
from collections.abc import Iterable
from dataclasses import replace
from wsgiref.types import StartResponse, WSGIEnvironment

from flask import Flask

from app import native
from app.api import prometheus
from app.host.imports import uncollected_imports
from app.http.context import Backend
from app.services.operations.data_dir import prepare_directory
from config.logging import configure_logging
from config.redaction import Redaction
from config.secrets import secrets_of
from config.settings import Settings, load_settings


class LateApplication:
    """Requests for native paths go to the native application, all others to the whole one, which the first makes.

    Both count and limit together: they have one control plane, one set of slots, and one set of counters.
    """

    def __init__(self, settings: Settings, backend: Backend) -> None:
        self._settings, self._backend = settings, backend
        self._native = native.native_app(settings, backend)
        self._sections = frozenset(_section(rule.rule) for rule in self._native.url_map.iter_rules())
        self._whole: Flask | None = None
        self._making = threading.Lock()

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        return self.application_for(environ.get("PATH_INFO", ""))(environ, start_response)

    def application_for(self, path: str) -> Flask:
        """The application that answers requests for the path, also where it has no such route."""
        return self._native if _section(path) in self._sections else self._made()

    def _made(self) -> Flask:
        with self._making:  # other requests wait for the same application
            if self._whole is None:
                with uncollected_imports():
                    factory = importlib.import_module("app.factory")
                whole = factory.whole_app(self._settings, replace(self._backend, dialects=factory.DIALECTS))
                whole.extensions[prometheus.EXTENSION] = self._native.extensions[prometheus.EXTENSION]
                self._whole = whole
            return self._whole


def from_environment() -> LateApplication:
    """The application of a process of the API."""
    settings = prepare_directory(load_settings())
    configure_logging(settings.log.level, process="api", redaction=Redaction(secrets_of(settings)))
    return LateApplication(settings, native.backend_of(settings))


def _section(path: str) -> str:
    """The first two parts of a path: `/v1/jobs` of `/v1/jobs/ID`. No other vocabulary has one of the native ones."""
    return "/".join(path.split("/", 3)[:3])
