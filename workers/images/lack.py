"""Whether this node can run jobs in images."""

import shutil
from functools import cache
from pathlib import Path

from app.domain.nodes.sandboxes import PROCESS
from workers.images.image_tools import SKOPEO, UMOCI
from workers.sandbox.overlays import lack_of_overlays


@cache
def lack_of_images(data_dir: Path, sandbox: str) -> str:
    """Why not; empty where it can. Tried once for each process."""
    if sandbox == PROCESS:
        return "its jobs run without a sandbox"
    missing = [program for program in (SKOPEO, UMOCI, "unshare") if shutil.which(program) is None]
    if missing:
        return f"{' and '.join(missing)} {'is' if len(missing) == 1 else 'are'} not installed"
    data_dir.mkdir(parents=True, exist_ok=True)
    lack = lack_of_overlays(data_dir.resolve())
    return f"no overlay can be mounted: {lack}" if lack else ""
