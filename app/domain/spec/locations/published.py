"""Locations as others may read them, in model cards and lineage."""

from pathlib import PurePosixPath
from urllib.parse import urlsplit


def published(location: str, *, is_of_hub: bool = False) -> str:
    """A location without user, password, query and fragment; of a local path the last part alone."""
    try:
        parts = urlsplit(location)
    except ValueError:
        return ""
    if parts.scheme and parts.scheme != "file" and parts.hostname is not None:
        return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"
    return location if is_of_hub else PurePosixPath(parts.path).name
