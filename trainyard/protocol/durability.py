"""Flushing to disk, so that a file or a rename outlives a power failure; here, as storage and ranks both import it."""

import os
from pathlib import Path


def sync(path: Path | str, flags: int = 0, *, dir_fd: int | None = None) -> None:
    """Flush a file, or the names in a directory; ``flags`` are further ones for opening it."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | flags, dir_fd=dir_fd)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
