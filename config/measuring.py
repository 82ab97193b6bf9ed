"""Where the API's request processes count together, as prometheus_client wants to be told: by its own variable."""

import os
import socket
from collections.abc import Mapping
from pathlib import Path

from config.settings import Settings

VARIABLE = "PROMETHEUS_MULTIPROC_DIR"


def counting_directory(settings: Settings) -> Path:
    """Of one API server: several may share a data directory, each on a port of its own."""
    return settings.data.dir / "run" / "measurements" / f"{socket.gethostname()}-{settings.api.port}"


def shared_counts(environ: Mapping[str, str] | None = None) -> Path | None:
    """The directory that this process was told of; None when it counts alone."""
    named = (os.environ if environ is None else environ).get(VARIABLE)
    return Path(named) if named else None
