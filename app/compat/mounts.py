"""Mount paths of containers → references to the directories of the node. Pure."""

import re
from collections.abc import Sequence
from typing import NamedTuple


class Mount(NamedTuple):
    mounted: str  # path in the container
    location: str  # path or URI of the data; empty for code and outputs
    reference: str  # variable reference to the directory on the node


def mount_of_data(mounted: str, location: str, number: int) -> Mount:
    """The mount of a data source; ``number`` is its index in the native document."""
    return Mount(mounted.rstrip("/"), location, f"$(TRAINYARD_DATA_{number})")


def location_of(mounts: Sequence[Mount], path: str) -> str | None:
    """The location of a path on or below a mount; None where there is none."""
    for mount in sorted(mounts, key=lambda each: -len(each.mounted)):
        if mount.location and f"{path}/".startswith(f"{mount.mounted}/"):
            return f"{mount.location}{path.removeprefix(mount.mounted)}"
    return None


def map_paths(text: str, mounts: Sequence[Mount]) -> str:
    """The text with each mount path replaced by its reference."""
    references = {mount.mounted: mount.reference for mount in mounts}
    if not references:
        return text
    longest_first = "|".join(map(re.escape, sorted(references, key=len, reverse=True)))
    pattern = rf"(?<![\w./-])(?:{longest_first})(?![\w.-])"
    return re.sub(pattern, lambda found: references[found[0]], text)
