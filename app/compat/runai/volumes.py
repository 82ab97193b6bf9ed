"""Volumes of a training → directories that jobs may read, and their mount paths in its words → references to those.

Jobs run without containers: nothing is mounted anywhere. A host path is itself, a claim that there is is `pvc://CLAIM`,
and what else is mounted lies below one of the storage roots: `nfs/SERVER/PATH`, `git/HOST/OWNER/NAME`, `s3/BUCKET`.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from app.compat.mounts import Mount, mount_of_data

_KINDS = ("hostPath", "nfs", "pvc", "git", "s3")
_SSH = re.compile(r"[\w.-]+@([\w.-]+):(.+)", re.ASCII)


class Volumes(NamedTuple):
    """In the order of the native document's sources, and the fields of which nothing comes."""

    found: Sequence[Mount]
    unheeded: Sequence[str]


def volumes_of(storage: Mapping[str, Any], may_read: Callable[[str], bool]) -> Volumes:
    found: list[Mount] = []
    unheeded = [f"storage.{kind}" for kind in storage if kind not in _KINDS]
    for kind in _KINDS:
        for number, each in enumerate(storage.get(kind) or []):
            if each.get("exclude"):
                continue
            field = f"storage.{kind}.{each.get('name', number)}"
            mounted = str(each.get("mountPath" if kind in ("hostPath", "nfs") else "path") or "").rstrip("/")
            location = _location(kind, each)
            if not location or not mounted.startswith("/") or not (kind == "pvc" or may_read(location)):
                unheeded.append(field)
                continue
            found.append(mount_of_data(mounted, location, len(found)))
            unheeded += [f"{field}.{part}" for part in _lost(kind, each)]
    return Volumes(found, unheeded)


def _location(kind: str, volume: Mapping[str, Any]) -> str:
    """Empty where nothing says what is mounted."""
    if kind == "hostPath":
        return str(volume.get("path") or "").rstrip("/")
    if kind == "nfs":
        server, path = volume.get("server"), str(volume.get("path") or "").strip("/")
        return f"nfs/{server}/{path}".rstrip("/") if server else ""
    if kind == "pvc":
        # One that is to be made would be empty: there is nothing to find.
        return f"pvc://{volume['claimName']}/." if volume.get("existingPvc") and volume.get("claimName") else ""
    if kind == "s3":
        return f"s3/{volume['bucket']}" if volume.get("bucket") else ""
    return _repository(str(volume.get("repository") or ""))


def _repository(url: str) -> str:
    ssh = _SSH.fullmatch(url)
    try:
        parts = urlsplit(url) if ssh is None else None
    except ValueError:
        return ""
    host, path = (ssh[1], ssh[2]) if ssh else (parts.hostname if parts else "", parts.path if parts else "")
    name = str(path).strip("/").removesuffix(".git")
    return f"git/{host}/{name}" if host and name else ""


def _lost(kind: str, volume: Mapping[str, Any]) -> Iterator[str]:
    """What is asked of it beyond being there to be read."""
    if kind in ("hostPath", "nfs", "pvc") and volume.get("readOnly") is False:
        yield "readOnly"
    if kind == "git":
        yield from (part for part in ("branch", "revision") if volume.get(part))
    if kind == "pvc" and volume.get("ephemeral"):
        yield "ephemeral"
