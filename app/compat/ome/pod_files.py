"""Volumes `secret` and `configMap` of a runtime's pod → files of the native document, from the job's project."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from app.compat.mounts import ContainerMount
from app.domain.errors import BadSpec
from app.domain.spec.model import FILES
from app.http.context import backend
from app.services.access.secret_files import files_of, is_missing

_FIELD = "spec.runtimeRef"
# Kind of volume → the field that names the secret. Config maps are files of the project as secrets are.
_KINDS = {"secret": "secretName", "configMap": "name"}
_OWNER_READS, _MOST_MODE = 0o400, 0o777


class PodFiles(NamedTuple):
    """The keys of a secret as files; with ``part``, one of them at the path ``mounted`` itself."""

    name: str
    mode: str = ""  # octal digits; empty: that of secrets
    names: Mapping[str, str] = {}
    optional: bool = False  # what is missing is left out
    mounted: str = ""
    part: str = ""


def files_of_volume(volume: Mapping[str, Any]) -> PodFiles | None:
    """Without a path. None for a volume of another kind, and for one that files of a document can't be."""
    kind = next((each for each in _KINDS if isinstance(volume.get(each), Mapping)), None)
    if kind is None:
        return None
    found = volume[kind]
    name, mode, items = found.get(_KINDS[kind]), found.get("defaultMode"), found.get("items") or []
    if not isinstance(items, list):
        return None
    names = dict(_named(items))
    if not isinstance(name, str) or not _is_mode(mode) or len(names) != len(items):
        return None
    return PodFiles(name, f"0{mode:03o}" if mode is not None else "", names, found.get("optional") is True)


def mounts_of_files(project: str, wanted: Sequence[PodFiles]) -> list[ContainerMount]:
    """Reads the files. Raises BadSpec for a secret or a key that the project does not have, unless it is optional."""
    found = []
    for each in wanted:
        files = _files(project, each)
        native: dict[str, Any] = {"type": FILES, "files": files}
        native |= {"sub_path": each.part} if each.part else {}
        native |= {"mode": each.mode} if each.mode else {}
        if files:
            found.append(ContainerMount(each.mounted, "", "", native))
    return found


def _files(project: str, wanted: PodFiles) -> list[dict[str, str]]:
    """Raises BadSpec."""
    directory = backend().settings.security.secrets_dir
    if wanted.optional and (directory is None or is_missing(directory, project, wanted.name)):
        return []
    if directory is None:
        raise BadSpec(
            f"a volume of the runtime is the secret {wanted.name}, and secrets are not configured; ask the "
            "administrator to set TRAINYARD_SECURITY_SECRETS_DIR",
            field=_FIELD,
        )
    values = files_of(directory, project, wanted.name, field=_FIELD)
    names = wanted.names or {key: key for key in values}
    needed = [*names, *([wanted.part] if wanted.part and wanted.part not in names.values() else [])]
    missing = [key for key in needed if key not in values]
    if missing and not wanted.optional:
        raise BadSpec(
            f"a volume of the runtime names the key {missing[0]}, which the secret {wanted.name} of the project "
            f"{project} does not have; have its operator add the file {project}/{wanted.name}/{missing[0]} below "
            "TRAINYARD_SECURITY_SECRETS_DIR",
            field=_FIELD,
        )
    present = [(name, values[key]) for key, name in names.items() if key in values]
    if missing and wanted.part and wanted.part not in (name for name, _ in present):
        return []
    return [{"name": name, "content": value} for name, value in present]


def _named(items: Sequence[object]) -> Iterator[tuple[str, str]]:
    """(key, name) of the items that name a file in the directory itself, with the mode of the others."""
    for each in items:
        if isinstance(each, Mapping) and each.keys() == {"key", "path"}:
            key, name = each["key"], each["path"]
            if isinstance(key, str) and isinstance(name, str) and "/" not in name:
                yield key, name


def _is_mode(mode: object) -> bool:
    if mode is None:
        return True
    return type(mode) is int and 0 <= mode <= _MOST_MODE and bool(mode & _OWNER_READS)
