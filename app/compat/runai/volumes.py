"""Volumes of a training → directories that jobs may read, and their mount paths in its words → references to those.

Jobs run without containers: nothing is mounted anywhere. A host path is itself, a claim that there is is `pvc://CLAIM`,
and what else is mounted lies below one of the storage roots: `nfs/SERVER/PATH`, `git/HOST/OWNER/NAME`, `s3/BUCKET`.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from app.compat.mounts import Mount, mount_of_data
from app.schemas.spec.field_verdicts import warning

_KINDS = ("hostPath", "nfs", "pvc", "git", "s3")
# What says where a volume lies.
_NEEDED = {
    "hostPath": "without path there is no directory to read",
    "nfs": "without server there is nothing to read",
    "pvc": "a new claim would be empty: name one that exists, with existingPvc and claimName",
    "git": "without a repository's URL there is nothing to read",
    "s3": "without bucket there is nothing to read",
}
_SSH = re.compile(r"[\w.-]+@([\w.-]+):(.+)", re.ASCII)


class Volumes(NamedTuple):
    """In the order of the native document's sources, and a line for each of which nothing comes."""

    found: Sequence[Mount]
    warnings: Sequence[str]


def volumes_of(storage: Mapping[str, Any], may_read: Callable[[str], bool]) -> Volumes:
    found: list[Mount] = []
    warnings: list[str] = []
    for kind in _KINDS:
        for number, each in enumerate(storage.get(kind) or []):
            if each.get("exclude"):
                continue
            field = f"spec.storage.{kind}.{each.get('name', number)}"
            mounted = str(each.get("mountPath" if kind in ("hostPath", "nfs") else "path") or "").rstrip("/")
            location = _location(kind, each)
            if problem := _problem(kind, mounted, location, may_read):
                warnings.append(warning(field, problem))
                continue
            found.append(mount_of_data(mounted, location, len(found)))
            if kind in ("hostPath", "nfs", "pvc") and each.get("readOnly") is False:
                warnings.append(warning(f"{field}.readOnly", "jobs only read it: write to TRAINYARD_OUTPUT_DIR"))
    return Volumes(found, warnings)


def _problem(kind: str, mounted: str, location: str, may_read: Callable[[str], bool]) -> str:
    """Why nothing comes of a volume; empty where it is found."""
    if not location:
        return _NEEDED[kind]
    if not mounted.startswith("/"):
        return "where it is mounted must begin with a slash"
    if kind != "pvc" and not may_read(location):
        return f"jobs may not read {location}: it must lie below a storage root of the operator"
    return ""


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
