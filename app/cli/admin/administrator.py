"""Shared by the administrator commands: the acting caller, and helpers that page and tabulate rows."""

from typing import TYPE_CHECKING, Any

from app.security.permissions import Caller, Role

if TYPE_CHECKING:
    from app.services.requests.pagination import PageRequest

# Access to the database's password implies full access; audit records show the actor `cli`.
ADMINISTRATOR = Caller(key_id="cli", role=Role.SUPER_ADMIN, project=None)


def newest(limit: int) -> "PageRequest":
    from app.services.requests.pagination import PageRequest

    return PageRequest(size=limit, order="-created_at")


def picked(items: list[dict[str, Any]], names: tuple[str, ...]) -> list[list[Any]]:
    """The values of the named fields, one row per item."""
    return [[item.get(name) for name in names] for item in items]
