"""The API of a command with `--local`: served by the command itself, on its database, for as long as it runs."""

import secrets
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

from flask import Flask
from werkzeug.serving import WSGIRequestHandler, make_server

from app.cli.database import admin_database, cli_settings
from app.host.imports import uncollected_imports
from app.native import MODULES, backend_of, native_app
from app.services.requests.wakeups import Dispatcher

_POLL_SECONDS = 0.02  # how soon it notices that the command has ended
# First part of a path → the modules that serve all paths with it: most commands ask for one kind of thing, and each
# module that need not be imported is time. For other paths the whole API is made.
SERVED_BY = {
    "audit": ("audit",),
    "cluster": ("cluster",),
    "keys": ("access",),
    "nodes": ("cluster",),
    "projects": ("access", "not_built"),
    "queue": ("cluster",),
    "queues": ("cluster",),
    "registered-models": ("cluster",),
    "shares": ("cluster",),
    "webhooks": ("webhooks",),
    "jobs": ("cluster", "events", "interactive", "job_verbs", "jobs", "logs", "metrics", "results"),
}


class _Silent(WSGIRequestHandler):
    """Requests of a command to itself are not worth a line each on its standard error."""

    def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
        pass


class Applications:
    """As one WSGI application: each request goes to one with the modules that serve its path, made when it is asked."""

    def __init__(self, make: Callable[..., Flask]) -> None:
        self._make, self._made = make, dict[Sequence[str], Flask]()
        self._lock = threading.Lock()

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:  # noqa: ANN401 – WSGI's
        head = environ["PATH_INFO"].removeprefix("/v1/").partition("/")[0]
        return self._application(SERVED_BY.get(head, MODULES))(environ, start_response)

    def _application(self, modules: Sequence[str]) -> Flask:
        with self._lock:
            if modules not in self._made:
                with uncollected_imports():
                    self._made[modules] = self._make(modules=modules)
            return self._made[modules]


@contextmanager
def own_api() -> Iterator[tuple[str, str]]:
    """URL and key of an API on the configured database; pending wake-ups are sent before it ends.

    It listens on a free port of the loopback interface, and its key, which grants full access as the actor `cli`, is
    known to this process alone. Raises ClickException for a database that is not initialized.
    """
    with admin_database() as db:
        settings = cli_settings()
        dispatcher, key = Dispatcher(settings), secrets.token_urlsafe(32)
        backend = backend_of(settings, db=db, dispatcher=dispatcher)
        app = Applications(partial(native_app, settings, backend, administrator_key=key))
        server = make_server("127.0.0.1", 0, app, threaded=True, request_handler=_Silent)
        thread = threading.Thread(target=server.serve_forever, args=(_POLL_SECONDS,), name="own-api", daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}", key
        finally:
            server.shutdown()
            thread.join()
            server.server_close()
            dispatcher.close()
