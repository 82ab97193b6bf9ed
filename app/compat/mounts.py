"""Directories that a client's words find at paths of a container, which here lie where the node has them. Pure."""

import re
from collections.abc import Sequence
from typing import NamedTuple


class Mount(NamedTuple):
    mounted: str  # where the words look for it
    location: str  # where jobs find it: a path or a URI; empty for what is no data
    reference: str  # to where the node has it


def mount_of_data(mounted: str, location: str, number: int) -> Mount:
    """Of the source of this number in the native document."""
    return Mount(mounted.rstrip("/"), location, f"$(TRAINYARD_DATA_{number})")


def location_of(mounts: Sequence[Mount], path: str) -> str | None:
    """Of a path that is mounted, or lies in what is."""
    for mount in sorted(mounts, key=lambda each: -len(each.mounted)):
        if mount.location and f"{path}/".startswith(f"{mount.mounted}/"):
            return f"{mount.location}{path.removeprefix(mount.mounted)}"
    return None


def placed(text: str, mounts: Sequence[Mount]) -> str:
    """With a reference to where the node has it instead of each path of a container."""
    references = {mount.mounted: mount.reference for mount in mounts}
    if not references:
        return text
    longest_first = "|".join(map(re.escape, sorted(references, key=len, reverse=True)))
    pattern = rf"(?<![\w./-])(?:{longest_first})(?![\w.-])"
    return re.sub(pattern, lambda found: references[found[0]], text)
