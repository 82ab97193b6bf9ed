"""The reading rules of this process: from which directories jobs may read here."""

import os

from app.domain.locations import ReadingRules
from app.storage.storage import LOCAL_SCHEME
from config.settings import Settings


def reading_rules(settings: Settings) -> ReadingRules:
    """Links are followed: what counts is where a path really leads."""
    return ReadingRules(
        roots=tuple(map(str, settings.storage_roots)),
        data_dir=str(settings.data.dir),
        storage_dir=_storage_dir(settings.storage.url),
        fetch_allow=settings.fetch.allow,
        real_path=_real_path,
    )


def _real_path(path: str) -> str:
    """As far as this process may follow the links; what it may not look at lies where it is said to."""
    try:
        return os.path.realpath(path)
    except OSError:
        return os.path.normpath(path)


def _storage_dir(url: str) -> str:
    """The directory of a storage on this machine's disk, as the storage itself reads the URL; empty for any other."""
    scheme, _, path = url.partition("://")
    return path.rstrip("/") if scheme == LOCAL_SCHEME else ""
