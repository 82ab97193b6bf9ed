"""Volumes of a training → directories that jobs may read, and empty directories, at the mount paths.

A host path is read in place, an existing claim is `pvc://CLAIM`, or a mount if the workload writes to it, and other
volumes are directories below a storage root: `nfs/SERVER/PATH`, `git/HOST/OWNER/NAME`, `s3/BUCKET`. A bucket with keys
or a service is fetched (see `buckets`), and a repository that is cloned is none of them (see `repositories`).
"""

import math
import posixpath
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from app.compat.mounts import ContainerMount, mount_of_data
from app.compat.quantities import amount_of
from app.compat.runai.buckets import StorageBucket, bucket_of
from app.compat.runai.volume_claims import is_mounted, mount_of_claim, name_of_claim, size_without_effect
from app.domain.errors import BadSpec
from app.domain.spec.model import EMPTY, MEMORY
from app.domain.spec.rules.mounts import why_not_free
from app.schemas.spec.field_verdicts import warning
from app.schemas.spec.resource_config import MAX_MB

_KINDS = ("hostPath", "nfs", "pvc", "git", "s3")
# Kind → warning of a volume without a location.
_NEEDED = {
    "hostPath": "path is required",
    "nfs": "server is required",
    "pvc": "claimName is required",
    "git": "the URL of a repository is required",
    "s3": "bucket is required",
}
_NOT_READ = "jobs may not read {}: it must lie below a storage root of the operator"
_IN_MEMORY, _SHARED_MEMORY = "Memory", "/dev/shm"  # noqa: S108 – a mount point
_SSH = re.compile(r"[\w.-]+@([\w.-]+):(.+)", re.ASCII)


class Volumes(NamedTuple):
    """Mounts in the order of the native data sources, claims that are mounts alone, empty directories, a warning for
    each ignored volume, and the sources that are buckets.
    """

    found: Sequence[ContainerMount]
    claims: Sequence[ContainerMount]
    empty: Sequence[ContainerMount]
    warnings: Sequence[str]
    buckets: Sequence[StorageBucket]

    @property
    def mounts(self) -> Sequence[ContainerMount]:
        return [*self.found, *self.claims, *self.empty]


def volumes_of(
    storage: Mapping[str, Any], may_read: Callable[[str], bool], workload: str, cloned: int | None = None
) -> Volumes:
    """``workload`` is the name of the workload, ``cloned`` the number of the Git volume that is the job's code.

    Raises BadSpec for a directory of the node that jobs may not read: the program would start without its files.
    """
    found: list[ContainerMount] = []
    claims: list[ContainerMount] = []
    warnings: list[str] = []
    buckets: list[StorageBucket] = []
    for kind in _KINDS:
        for number, each in enumerate(storage.get(kind) or []):
            if each.get("exclude") or (kind == "git" and number == cloned):
                continue
            named = str(each.get("name", number))
            field = f"spec.storage.{kind}.{named}"
            warnings += size_without_effect(each, field) if kind == "pvc" else []
            if kind == "pvc" and is_mounted(each):
                claim = mount_of_claim(each, name_of_claim(workload, named), storage, field, warnings)
                claims += [claim] if claim else []
                if claim or not each.get("existingPvc"):
                    continue
            mounted = str(each.get(_path_of(kind)) or "").rstrip("/")
            location = _location(kind, each)
            if kind == "hostPath" and location and not may_read(location):
                raise BadSpec(_NOT_READ.format(location), field=f"{field}.path")
            bucket = bucket_of(each, len(found), field) if kind == "s3" else None
            if problem := _problem(kind, mounted, location, (lambda _: True) if bucket else may_read):
                warnings.append(warning(field, problem))
                continue
            if problem := _why_not_there(mounted, found):
                warnings.append(warning(f"{field}.{_path_of(kind)}", problem))
            found.append(mount_of_data(mounted, location, len(found)))
            buckets += [bucket] if bucket else []
            if kind in ("hostPath", "nfs") and each.get("readOnly") is False:
                warnings.append(warning(f"{field}.readOnly", "volumes are read-only: write to TRAINYARD_OUTPUT_DIR"))
    return Volumes(found, claims, _empty_directories(storage, warnings), warnings, buckets)


def _path_of(kind: str) -> str:
    """The field with the mount path."""
    return "mountPath" if kind in ("hostPath", "nfs") else "path"


def _why_not_there(mounted: str, others: Sequence[ContainerMount]) -> str:
    """Why nothing lies at the path, which command and args may name all the same; empty where the volume does."""
    path = posixpath.normpath(mounted)
    taken = "is the path of another volume" if any(posixpath.normpath(each.mounted) == path for each in others) else ""
    why = why_not_free(path) or taken
    return f"{path} {why}: only in command, args and variables the path leads to the volume" if why else ""


def _empty_directories(storage: Mapping[str, Any], warnings: list[str]) -> list[ContainerMount]:
    found = []
    for number, each in enumerate(storage.get("emptyDirVolume") or []):
        if each.get("exclude"):
            continue
        field, path = f"spec.storage.emptyDirVolume.{each.get('name', number)}", str(each.get("path") or "")
        native: dict[str, Any] = {"type": MEMORY if each.get("medium") == _IN_MEMORY else EMPTY}
        if path.rstrip("/") == _SHARED_MEMORY and native["type"] == MEMORY:
            continue  # every job has it
        if problem := why_not_free(posixpath.normpath(path)):
            warnings.append(warning(field, f"{path} {problem}"))
            continue
        if size := each.get("sizeLimit"):
            native["size_mb"] = min(MAX_MB, math.ceil(amount_of(size) / 2**20))
        found.append(ContainerMount(path, "", "", native))
    return found


def _problem(kind: str, mounted: str, location: str, may_read: Callable[[str], bool]) -> str:
    """Why a volume is ignored; empty where it is used."""
    if not location:
        return _NEEDED[kind]
    if not mounted.startswith("/"):
        return "the mount path must be absolute"
    if kind != "pvc" and not may_read(location):
        return _NOT_READ.format(location)
    return ""


def _location(kind: str, volume: Mapping[str, Any]) -> str:
    """The location of a volume; empty where it is not specified."""
    if kind == "hostPath":
        path = str(volume.get("path") or "")
        return path.rstrip("/") or path[:1]
    if kind == "nfs":
        server, path = volume.get("server"), str(volume.get("path") or "").strip("/")
        return f"nfs/{server}/{path}".rstrip("/") if server else ""
    if kind == "pvc":
        return f"pvc://{volume['claimName']}/." if volume.get("claimName") else ""
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
