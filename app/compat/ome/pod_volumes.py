"""Volumes of the trainer's pod in a runtime → mounts of a job that runs a command. Pure."""

import math
import posixpath
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from app.compat.mounts import ContainerMount
from app.compat.ome.pod_files import PodFiles, files_of_volume
from app.compat.ome.templates import POD, pod_of, replicated_of
from app.compat.quantities import amount_of
from app.domain.spec.model import CLAIM, EMPTY, FILES, MEMORY
from app.domain.spec.rules.mounts import why_not_free
from app.schemas.spec.resource_config import CLAIM_NAME, MAX_MB

_SHARED_MEMORY = "/dev/shm"  # noqa: S108 – a mount point
_OF_A_MOUNT = {"name", "mountPath", "readOnly", "subPath"}
_OF_THE_PROJECT = (CLAIM, FILES)


class PodVolumes(NamedTuple):
    """``unused``: paths below the runtime's template of what has no effect; ``files``: secrets yet to be read."""

    mounts: list[ContainerMount]
    unused: list[str]
    files: list[PodFiles]


def pod_volumes_of(template: Mapping[str, Any]) -> PodVolumes:
    """Claims and secrets of the job's project, and empty directories, where the container `trainer` mounts them."""
    trainer = next(iter(replicated_of(template)), None)
    if trainer is None:
        return PodVolumes([], [], [])
    job = template["spec"]["replicatedJobs"][trainer.number]
    at = ".".join((f".spec.replicatedJobs.{trainer.number}", *POD))
    containers = pod_of(job)["containers"]
    here = f"{at}.containers.{next(n for n, each in enumerate(containers) if each is trainer.main)}.volumeMounts"
    volumes, unused = _volumes(pod_of(job).get("volumes"), f"{at}.volumes")
    found = PodVolumes([], unused, [])
    left = {name: native for name, native in volumes.items() if native["type"] not in _OF_THE_PROJECT}
    for number, each in enumerate(_items(trainer.main.get("volumeMounts"))):
        field = f"{here}.{number}"
        path, native = posixpath.normpath(str(each.get("mountPath") or ".")), volumes.get(str(each.get("name")), {})
        if native.get("type") == MEMORY and path == _SHARED_MEMORY:
            continue  # every job has it
        taken = path in (*(each.mounted for each in found.mounts), *(each.mounted for each in found.files))
        # An empty directory at two paths would be two directories.
        is_there = native.get("type") in _OF_THE_PROJECT or left.pop(str(each.get("name")), None) is not None
        if taken or not is_there or why_not_free(path) or ".." in str(each.get("subPath")).split("/"):
            found.unused.append(field)
            continue
        if native["type"] == FILES:
            part = str(each.get("subPath") or "").strip("/")
            found.files.append(native["files"]._replace(mounted=path, part=part))
        else:
            found.mounts.append(ContainerMount(path, "", "", {**native, **_of_the_mount(each, native)}))
        parts = _OF_A_MOUNT if native["type"] in _OF_THE_PROJECT else _OF_A_MOUNT - {"readOnly", "subPath"}
        found.unused.extend(f"{field}.{name}" for name in each if name not in parts)
    return found


def _volumes(volumes: object, path: str) -> tuple[dict[str, Mapping[str, Any]], list[str]]:
    """Native mounts without a path, by name, and the paths of volumes of other kinds, and of further ones of a name."""
    found, unused = dict[str, Mapping[str, Any]](), list[str]()
    for number, each in enumerate(_items(volumes)):
        native = _native(each)
        if native is None or not isinstance(each.get("name"), str) or each["name"] in found:
            unused.append(f"{path}.{number}")
        else:
            found[each["name"]] = native
    return found, unused


def _native(volume: Mapping[str, Any]) -> dict[str, Any] | None:
    if (files := files_of_volume(volume)) is not None:
        return {"type": FILES, "files": files}
    claim, empty = volume.get("persistentVolumeClaim"), volume.get("emptyDir")
    name = claim.get("claimName") if isinstance(claim, Mapping) else None
    if isinstance(claim, Mapping) and isinstance(name, str) and CLAIM_NAME.fullmatch(name):
        return {"type": CLAIM, "claim": name, **({"read_only": True} if claim.get("readOnly") else {})}
    if "emptyDir" not in volume or not (empty is None or isinstance(empty, Mapping)):
        return None
    found, kind = empty or {}, MEMORY if empty and empty.get("medium") == "Memory" else EMPTY
    try:
        size = min(MAX_MB, math.ceil(amount_of(found["sizeLimit"]) / 2**20)) if found.get("sizeLimit") else 0
    except (ValueError, TypeError):
        return None
    return {"type": kind, **({"size_mb": size} if size > 0 else {})}


def _of_the_mount(mount: Mapping[str, Any], native: Mapping[str, Any]) -> dict[str, Any]:
    if native["type"] != CLAIM:
        return {}
    part = str(mount.get("subPath") or "").strip("/")
    return {**({"sub_path": part} if part else {}), **({"read_only": True} if mount.get("readOnly") else {})}


def _items(found: object) -> Iterator[Mapping[str, Any]]:
    yield from (each if isinstance(each, Mapping) else {} for each in found) if isinstance(found, list) else ()
