"""The control plane for a command of the administrator: what the API stands on, for as long as the command runs."""

from collections.abc import Iterator
from contextlib import contextmanager

from app.cli.admin.database import admin_database, cli_settings
from app.security.secrets import SecretBox
from app.services.requests.control_plane import ControlPlane
from app.services.requests.storage_access import reading_rules
from app.services.requests.wakeups import Dispatcher
from app.storage.storage import Storage


@contextmanager
def admin_plane() -> Iterator[ControlPlane]:
    """On the configured database; wake-ups are sent before it ends."""
    with admin_database() as db:
        settings = cli_settings()
        dispatcher = Dispatcher(settings)
        try:
            yield ControlPlane(
                db=db, dispatcher=dispatcher, storage=Storage(settings.storage.url),
                box=SecretBox(settings.security.secret_key), reading=reading_rules(settings),
            )  # fmt: skip
        finally:
            dispatcher.close()
