"""What the administrator's groups share: who acts, and pages of rows for people or programs."""

from typing import Any

from app.security.permissions import Caller, Role
from app.services.requests.pagination import PageRequest

# Whoever may read the database's password may do everything; history shows that it was done at the machine.
ADMINISTRATOR = Caller(key_id="cli", role=Role.SUPER_ADMIN, project=None)


def newest(limit: int) -> PageRequest:
    return PageRequest(size=limit, order="-created_at")


def picked(items: list[dict[str, Any]], names: tuple[str, ...]) -> list[list[Any]]:
    """The values of these fields, row by row."""
    return [[item.get(name) for name in names] for item in items]
