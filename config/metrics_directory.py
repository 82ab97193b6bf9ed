"""The directory in which API processes share their metrics, passed to prometheus_client by its own environment
variable.
"""

import os
import socket
from collections.abc import Mapping
from pathlib import Path

from config.settings import Settings

VARIABLE = "PROMETHEUS_MULTIPROC_DIR"


def multiprocess_directory(settings: Settings) -> Path:
    """One per API server: several may share a data directory, each on a port of its own."""
    return settings.data.dir / "run" / "measurements" / f"{socket.gethostname()}-{settings.api.port}"


def inherited_multiprocess_directory(environ: Mapping[str, str] | None = None) -> Path | None:
    """The directory inherited by this process; None when its metrics are its own."""
    named = (os.environ if environ is None else environ).get(VARIABLE)
    return Path(named) if named else None
