"""Mount paths of containers → mounts of the job, and references to the directories of the node. Pure."""

import posixpath
import re
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

from app.domain.spec.model import DATA
from app.domain.spec.rules.mounts import why_not_free

# Of a mount whose path words refer to: nodes without a sandbox run the job, too.
OPTIONAL = {"required": False}


class ContainerMount(NamedTuple):
    mounted: str  # path in the container
    location: str  # path or URI of the data; empty for code and outputs
    reference: str  # variable reference to the directory on the node; empty where words keep the mount path
    native: Mapping[str, Any] = MappingProxyType({})  # of the native document, without path


def mount_of_data(mounted: str, location: str, number: int) -> ContainerMount:
    """The mount of a data source; ``number`` is its index in the native document."""
    native = {"type": DATA, **({"source": number} if number else {}), **OPTIONAL}
    return ContainerMount(mounted.rstrip("/"), location, f"$(TRAINYARD_DATA_{number})", native)


def native_mounts(mounts: Sequence[ContainerMount]) -> dict[str, Any]:
    """The field ``mounts`` of ``resource_config``: of the mounts at paths that a job may have."""
    named = {posixpath.normpath(mount.mounted): mount.native for mount in reversed(mounts) if mount.native}
    found = [{"path": path, **native} for path, native in reversed(named.items()) if not why_not_free(path)]
    return {"mounts": found} if found else {}


def location_of(mounts: Sequence[ContainerMount], path: str) -> str | None:
    """The location of a path on or below a mount; None where there is none."""
    for mount in sorted(mounts, key=lambda each: -len(each.mounted)):
        if mount.location and f"{path}/".startswith(f"{mount.mounted}/"):
            return f"{mount.location}{path.removeprefix(mount.mounted)}"
    return None


def map_paths(text: str, mounts: Sequence[ContainerMount]) -> str:
    """The text with each mount path replaced by its reference."""
    references = {mount.mounted: mount.reference for mount in mounts if mount.reference}
    if not references:
        return text
    longest_first = "|".join(map(re.escape, sorted(references, key=len, reverse=True)))
    pattern = rf"(?<![\w./-])(?:{longest_first})(?![\w.-])"
    return re.sub(pattern, lambda found: references[found[0]], text)
