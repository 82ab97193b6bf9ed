"""Services that jobs of a project may connect to: a list of ``host:port`` and ``*.domain:port``."""

import re
from collections.abc import Iterable

NONE, GATE = NETWORKS = ("none", "gate")  # resource_config.network
_LABEL = r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?"
_PORT = r"(?:[1-9][0-9]{0,3}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5])"
SERVICE = re.compile(rf"(?:\*\.)?{_LABEL}(?:\.{_LABEL})*:{_PORT}")
SERVICE_RULE = "use host:port or *.domain:port in lower case, such as pypi.org:443 or *.huggingface.co:443"
MOST_SERVICES = 200
PRIVATE = "it leads to a private address"  # why a gate refuses one that the operator does not allow
EVERYWHERE = "*"  # every service at a public address; for processes of the platform, in no list of a project


def is_listed(host: str, port: int, services: Iterable[str]) -> bool:
    """Whether the list has this service; ``*.domain`` stands for all names below the domain, not for itself."""
    name = host.lower().rstrip(".")
    return any(service == EVERYWHERE or _fits(name, port, service) for service in services)


def _fits(name: str, port: int, service: str) -> bool:
    pattern, _, listed_port = service.rpartition(":")
    if str(port) != listed_port:
        return False
    return name.endswith(pattern[1:]) if pattern.startswith("*.") else name == pattern
