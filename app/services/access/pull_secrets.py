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

    Entries without user and password, such as those of credential helpers, have empty ones: what is beside them may be
    of use. Raises BadSpec for a file that can't be read or is no such document.
    """
    found = present_values(directory, project, name, {LOGINS: (LOGINS,)}, field=field)
    if not found:
        return []
    try:
        entries = json.loads(found[LOGINS])["auths"]
        return [_login(registry, entry) for registry, entry in entries.items()]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        # Without what was raised, which may quote the secret.
        raise unusable(project, name, 'it has to be {"auths": {"HOST": {"auth": "…"}}}', field=field) from None


def unusable(project: str, name: str, why: str, *, field: str) -> BadSpec:
    """What to raise for the secret."""
    return BadSpec(
        f"the operator's file {project}/{name}/{LOGINS} below TRAINYARD_SECURITY_SECRETS_DIR is not what "
        f"`docker login` writes: {why}",
        field=field,
    )


def _login(registry: str, entry: object) -> RegistryLogin:
    username, password = _pair(entry) if isinstance(entry, Mapping) else ("", "")
    pair = {"username": username, "password": password} if username and password else {}
    return RegistryLogin().changed(registry=_registry(registry), **pair)


def _pair(entry: Mapping[str, Any]) -> tuple[str, str]:
    username, password = entry.get("username"), entry.get("password")
    if encoded := entry.get("auth"):
        try:
            username, _, password = base64.b64decode(encoded).decode().partition(":")
        except (ValueError, TypeError):
            return "", ""
    return (username, password) if isinstance(username, str) and isinstance(password, str) else ("", "")


def _registry(key: str) -> str:
    """As references to images begin; clients write addresses, too: https://index.docker.io/v1/."""
    name = key.partition("://")[2] or key
    host, _, path = name.rstrip("/").partition("/")
    if path in ("v1", "v2"):
        path = ""
    return "/".join(filter(None, ("docker.io" if host in _HUB else host, path)))
