"""Requests for services."""

from typing import Any


def service_request(**changes: Any) -> dict[str, Any]:
    """A document of a service that is accepted where `/srv` is a storage root."""
    return {
        "name": "support",
        "model": {"model_uri": "/srv/models/tiny"},
        "resource_config": {"device_type": "cpu"},
        **changes,
    }
