"""How much volume claims and empty directories may hold that an attempt writes to: what their mounts say, and of claims
the node's own limit.
"""

from collections.abc import Iterable
from pathlib import Path

from app.domain.spec.model import CLAIM, EMPTY, Mount
from workers.sandbox.spec import FilesystemView


def limits_of_claims(view: FilesystemView, mounts: Iterable[Mount], most_mb: int) -> dict[Path, int]:
    """Megabytes by directory of a claim; a claim without any limit is not there. ``most_mb``: 0 for none.

    The whole claim counts, also where a part of it is mounted.
    """
    asked = {Path(mount.path): mount.size_mb for mount in mounts if mount.type == CLAIM}
    found: dict[Path, int] = {}
    for placement in view.placements:
        if placement.source is None or not placement.writable or placement.target not in asked:
            continue
        claim = view.claim_around(placement.source) or placement.source
        limits = [limit for limit in (asked[placement.target], most_mb, found.get(claim, 0)) if limit]
        if limits:
            found[claim] = min(limits)
    return found


def limits_of_empty(view: FilesystemView, mounts: Iterable[Mount]) -> dict[Path, tuple[Path, int]]:
    """Mount path → the directory on the node and its megabytes, of mounts of type empty with a limit."""
    asked = {Path(mount.path): mount.size_mb for mount in mounts if mount.type == EMPTY and mount.size_mb}
    return {
        placement.target: (placement.source, asked[placement.target])
        for placement in view.placements
        if placement.source is not None and placement.target in asked
    }
