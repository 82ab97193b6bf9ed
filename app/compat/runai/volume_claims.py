"""Claims of Run:ai's volumes that a workload writes to, or that are new → mounts of a native job document. Pure."""

import hashlib
import math
import posixpath
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from app.compat.mounts import ContainerMount
from app.compat.quantities import amount_of
from app.domain.errors import BadSpec
from app.domain.spec.model import CLAIM, EMPTY
from app.domain.spec.rules.mounts import why_not_free
from app.schemas.spec.field_verdicts import warning
from app.schemas.spec.resource_config import CLAIM_NAME, CLAIM_RULE, MAX_MB

_LONGEST_NAME = 253
_DIGITS = 8  # of a digest
_NOT_IN_NAMES = re.compile(r"[^a-z0-9-]+")
_MODES = ("readWriteOnce", "readWriteMany")  # by which a claim is writable


def is_mounted(volume: Mapping[str, Any]) -> bool:
    """Whether the claim is a mount of its own, rather than data that is read."""
    return not volume.get("existingPvc") or (volume.get("readOnly") is False and bool(volume.get("claimName")))


def size_without_effect(volume: Mapping[str, Any], field: str) -> list[str]:
    """A warning for the size of a claim that the workload does not make and write to."""
    has_none = volume.get("existingPvc") or _is_read(volume)
    asked = has_none and (volume.get("claimInfo") or {}).get("size")
    why = "only new claims that the workload writes to have a size"
    return [warning(f"{field}.claimInfo.size", why)] if asked else []


def mount_of_claim(
    volume: Mapping[str, Any], name: str, storage: Mapping[str, Any], field: str, warnings: list[str]
) -> ContainerMount | None:
    """None, with a warning, where nothing can be mounted at its path, or only for reading; ``name`` is that of a new
    claim without one. Raises BadSpec for a name that no claim to write to may have.
    """
    named = volume.get("claimName")
    if named and not CLAIM_NAME.fullmatch(named):
        raise BadSpec(CLAIM_RULE, field=f"{field}.claimName")
    mounted = posixpath.normpath(str(volume.get("path") or "."))
    is_new, problem = not volume.get("existingPvc"), _problem(volume, mounted, list(_paths(storage)))
    if problem:
        warnings.append(warning(*((field, problem) if is_new else (f"{field}.readOnly", f"is read-only: {problem}"))))
        return None
    return ContainerMount(
        mounted, "", "", _new(volume, name, field) if is_new else {"type": CLAIM, "claim": volume["claimName"]}
    )


def name_of_claim(workload: str, volume: str) -> str:
    """The name of a new claim that the workload does not name; the digest tells `a-b`, `c` from `a`, `b-c`."""
    digest = hashlib.sha256(f"{workload}/{volume}".encode()).hexdigest()[:_DIGITS]
    name = _NOT_IN_NAMES.sub("-", f"{workload}-{volume}".lower())[: _LONGEST_NAME - _DIGITS - 1].strip("-")
    return f"{name or CLAIM}-{digest}"


def _problem(volume: Mapping[str, Any], mounted: str, paths: Sequence[str]) -> str:
    """Why the claim is no mount; ``paths`` are those of all volumes."""
    is_new, info = not volume.get("existingPvc"), volume.get("claimInfo") or {}
    if not mounted.startswith("/"):
        return "the mount path must be absolute"
    if is_new and info.get("volumeMode") == "Block":
        return "claims are directories, and no block devices: leave volumeMode out"
    if why := why_not_free(mounted):
        return f"{mounted} {why}"
    if paths.count(mounted) > 1:
        return f"{mounted} is the path of another volume"
    inner = next((path for path in paths if path.startswith(f"{mounted}/")), "")
    return f"{inner} would be mounted in it" if inner and not (is_new and volume.get("ephemeral")) else ""


def _new(volume: Mapping[str, Any], name: str, field: str) -> dict[str, Any]:
    """The native mount. Raises BadSpec for a size of nothing.

    An ephemeral claim lives as long as the pods do, as a directory of the attempt does.
    """
    size = {} if _is_read(volume) else _size(volume, field)
    if volume.get("ephemeral"):
        return {"type": EMPTY, **size}
    claim = {"type": CLAIM, "claim": volume.get("claimName") or name, "create": True}
    return {**claim, **({"read_only": True} if _is_read(volume) else size)}


def _size(volume: Mapping[str, Any], field: str) -> dict[str, int]:
    """Raises BadSpec."""
    size = (volume.get("claimInfo") or {}).get("size")
    if not size:
        return {}
    if amount_of(size) <= 0:
        raise BadSpec("must be more than 0; leave it out for no limit", field=f"{field}.claimInfo.size")
    return {"size_mb": min(MAX_MB, math.ceil(amount_of(size) / 2**20))}


def _is_read(volume: Mapping[str, Any]) -> bool:
    """Whether a new claim is read-only."""
    modes = (volume.get("claimInfo") or {}).get("accessModes") or {}
    return bool(volume.get("readOnly")) or (bool(modes.get("readOnlyMany")) and not any(map(modes.get, _MODES)))


def _paths(storage: Mapping[str, Any]) -> Iterator[str]:
    """The mount paths of all volumes."""
    volumes = (each for kind in storage.values() for each in kind or () if not each.get("exclude"))
    return (posixpath.normpath(str(each.get("mountPath") or each.get("path") or ".")) for each in volumes)
