"""Whether this machine can run jobs in container images."""

import shutil
from functools import cache
from pathlib import Path

from app.host.overlays import lack_of_overlays

SKOPEO, UMOCI = "skopeo", "umoci"  # the first copies images, the second unpacks them


def lack_of_skopeo() -> str:
    """Why this machine can't ask registries for images; empty where it can."""
    return "" if shutil.which(SKOPEO) is not None else f"{SKOPEO} is not installed"


@cache
def lack_of_images(data_dir: Path) -> str:
    """Why a node with this data directory can't; empty where it can. Tried once for each process."""
    missing = [program for program in (SKOPEO, UMOCI, "unshare") if shutil.which(program) is None]
    if missing:
        return f"{' and '.join(missing)} {'is' if len(missing) == 1 else 'are'} not installed"
    data_dir.mkdir(parents=True, exist_ok=True)
    lack = lack_of_overlays(data_dir.resolve())
    return f"no overlay can be mounted: {lack}" if lack else ""
