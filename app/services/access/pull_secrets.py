"""Logins of registries in secrets that the operator provides, as Kubernetes keeps them for pulling images.

Format: https://kubernetes.io/docs/concepts/configuration/secret/#docker-config-secrets.
"""

import base64
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from app.domain.errors import BadSpec
from app.domain.spec.image import RegistryLogin
from app.services.access.secret_files import LOGINS, present_values

_HUB = ("index.docker.io", "registry-1.docker.io")  # as clients of Docker Hub write it, besides docker.io


def logins_of(directory: Path, project: str, name: str, *, field: str) -> list[RegistryLogin]:
    """The logins of a secret of the project; empty where it has no such secret, or that has no such key.

    Raises BadSpec for a file that can't be read or is no such document.
    """
    found = present_values(directory, project, name, {LOGINS: (LOGINS,)}, field=field)
    if not found:
        return []
    try:
        entries = json.loads(found[LOGINS])["auths"]
        return [_login(registry, entry) for registry, entry in entries.items()]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        # Without what was raised, which may quote the secret.
        raise BadSpec(
            f"the operator's file {project}/{name}/{LOGINS} below TRAINYARD_SECURITY_SECRETS_DIR is not what "
            '`docker login` writes: {"auths": {"HOST": {"auth": "…"}}}, with user and password for each registry',
            field=field,
        ) from None


def _login(registry: str, entry: Mapping[str, Any]) -> RegistryLogin:
    username, password = entry.get("username") or "", entry.get("password") or ""
    if encoded := entry.get("auth"):
        username, _, password = base64.b64decode(encoded).decode().partition(":")
    if not (username and password):
        raise ValueError
    return RegistryLogin().changed(registry=_registry(registry), username=username, password=password)


def _registry(key: str) -> str:
    """As references to images begin; clients write addresses, too: https://index.docker.io/v1/."""
    name = key.partition("://")[2] or key
    host, _, path = name.rstrip("/").partition("/")
    if path in ("v1", "v2"):
        path = ""
    return "/".join(filter(None, ("docker.io" if host in _HUB else host, path)))
