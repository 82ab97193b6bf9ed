"""The control plane of an administrator command: the services behind the API, open while the command runs."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from app.cli.admin.database import admin_database, cli_settings

if TYPE_CHECKING:
    from app.services.requests.control_plane import ControlPlane


@contextmanager
def admin_plane() -> "Iterator[ControlPlane]":
    """A control plane on the configured database; pending wake-ups are sent before it closes."""
    from app.services.operations.control_plane import control_plane
    from app.services.requests.wakeups import Dispatcher

    with admin_database() as db:
        settings = cli_settings()
        dispatcher = Dispatcher(settings)
        try:
            yield control_plane(settings, db, dispatcher)
        finally:
            dispatcher.close()
