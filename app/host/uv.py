"""Where this machine has uv, which builds package environments of jobs."""

import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

_NAME = "uv"


@dataclass(frozen=True)
class Uv:
    path: Path
    version: str


def find_uv() -> Uv | None:
    """The one that is installed with the platform; None where there is none."""
    import importlib.metadata  # noqa: PLC0415 – slow to import, and supervisors of most jobs never ask

    try:
        version = importlib.metadata.version(_NAME)
    except importlib.metadata.PackageNotFoundError:
        return None
    beside = Path(sys.executable).parent / _NAME
    found = str(beside) if beside.is_file() else shutil.which(_NAME)
    return Uv(Path(found).resolve(), version) if found else None
