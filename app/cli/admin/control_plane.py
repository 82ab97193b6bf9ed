"""The control plane for a command of the administrator: what the API stands on, for as long as the command runs."""

from collections.abc import Iterator
from contextlib import contextmanager

from app.cli.admin.database import admin_database, cli_settings
from app.services.operations.control_plane import control_plane
from app.services.requests.control_plane import ControlPlane
from app.services.requests.wakeups import Dispatcher


@contextmanager
def admin_plane() -> Iterator[ControlPlane]:
    """On the configured database; wake-ups are sent before it ends."""
    with admin_database() as db:
        settings = cli_settings()
        dispatcher = Dispatcher(settings)
        try:
            yield control_plane(settings, db, dispatcher)
        finally:
            dispatcher.close()
