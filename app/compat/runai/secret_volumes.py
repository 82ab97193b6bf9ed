"""Run:ai's volumes of secrets and config maps → files of the native document.

The operator provides both as files of the project; like other volumes, one that is not there is ignored with a warning.
"""

import posixpath
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from app.compat.mounts import OPTIONAL
from app.domain.errors import BadSpec
from app.domain.spec.model import FILES
from app.domain.spec.rules.mounts import why_not_free
from app.http.context import backend
from app.schemas.spec.field_verdicts import warning
from app.services.access.secret_files import Reference, files_of, value_of

# Kind of volume → the field that names the secret.
_KINDS = {"secretVolume": "secret", "configMapVolume": "configMap"}
_NOT_SET = "secrets are not used: the operator has not set TRAINYARD_SECURITY_SECRETS_DIR"


class SecretVolume(NamedTuple):
    """The keys of a secret as files in a directory; with ``key``, that key as the file ``path``."""

    kind: str
    field: str
    name: str
    path: str
    key: str = ""
    mode: str = ""  # octal digits; empty: that of secrets


def secret_volumes(storage: Mapping[str, Any]) -> list[SecretVolume]:
    """The volumes that are not excluded. Raises BadSpec for one without a name or a path."""
    found = []
    for kind, named in _KINDS.items():
        for number, each in enumerate(storage.get(kind) or []):
            if each.get("exclude"):
                continue
            field = f"spec.storage.{kind}.{each.get('name', number)}"
            for needed in (named, "mountPath"):
                if not each.get(needed):
                    raise BadSpec(f"{needed} is required", field=field)
            path = posixpath.normpath(each["mountPath"])
            mode = each.get("defaultMode") or ""
            found.append(SecretVolume(kind, field, each[named], path, each.get("subPath") or "", mode))
    return found


def mounts_of_secrets(project: str, storage: Mapping[str, Any], warnings: list[str]) -> list[dict[str, Any]]:
    """Mounts of the native document. Raises BadSpec for a volume without a name or a path."""
    directory, volumes = backend().settings.security.secrets_dir, secret_volumes(storage)
    if directory is None:
        kinds = dict.fromkeys(volume.kind for volume in volumes)
        warnings += [warning(f"spec.storage.{kind}", _NOT_SET) for kind in kinds]
        return []
    found = []
    for volume in volumes:
        if not volume.path.startswith("/"):
            warnings.append(warning(volume.field, "the mount path must be absolute"))
            continue
        if problem := why_not_free(volume.path):
            warnings.append(warning(volume.field, f"{volume.path} {problem}"))
            continue
        try:
            files = _files(directory, project, volume)
        except BadSpec as error:
            warnings.append(warning(volume.field, error.message))
            continue
        if files:
            named = [{"name": name, "content": content} for name, content in files.items()]
            part = {"sub_path": volume.key} if volume.key else {}
            part |= {"mode": volume.mode} if volume.mode else {}
            found.append({"path": volume.path, "type": FILES, "files": named, **part, **OPTIONAL})
    return found


def _files(directory: Path, project: str, volume: SecretVolume) -> dict[str, str]:
    """Text by name. Raises BadSpec for a secret that the project does not have."""
    if not volume.key:
        return files_of(directory, project, volume.name, field=volume.field)
    return {volume.key: value_of(directory, project, Reference(volume.name, volume.key, volume.field))}
