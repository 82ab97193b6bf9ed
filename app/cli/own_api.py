"""The API of a command with `--local`: served by the command itself, on its database, for as long as it runs."""

import secrets
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from werkzeug.serving import WSGIRequestHandler, make_server

from app.cli.database import admin_database, cli_settings
from app.factory import create_app
from app.services.requests.wakeups import Dispatcher

_POLL_SECONDS = 0.02  # how soon it notices that the command has ended


class _Silent(WSGIRequestHandler):
    """Requests of a command to itself are not worth a line each on its standard error."""

    def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
        pass


@contextmanager
def own_api() -> Iterator[tuple[str, str]]:
    """URL and key of an API on the configured database; pending wake-ups are sent before it ends.

    It listens on a free port of the loopback interface, and its key, which grants full access as the actor `cli`, is
    known to this process alone. Raises ClickException for a database that is not initialized.
    """
    with admin_database() as db:
        settings = cli_settings()
        dispatcher, key = Dispatcher(settings), secrets.token_urlsafe(32)
        app = create_app(settings, db=db, dispatcher=dispatcher, administrator_key=key)
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
