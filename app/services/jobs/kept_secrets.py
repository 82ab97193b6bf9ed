"""Secrets that one key gave, in documents that another key changes."""

from app.domain.spec.model import ResourceConfig

_PLACES = ("image", "mounts", "network", "registry_logins")


def other_place(had: ResourceConfig, wanted: ResourceConfig) -> str | None:
    """The first field by which secrets would get to another program, or could be sent elsewhere."""
    return next((name for name in _PLACES if getattr(wanted, name) != getattr(had, name)), None)
