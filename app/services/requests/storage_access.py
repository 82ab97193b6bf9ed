"""The reading rules of this process: from which directories jobs may read here."""

import os
import time
from collections.abc import Callable

from app.domain.spec.locations.paths import ReadingRules
from app.storage.storage import LOCAL_SCHEME
from config.settings import Settings

REMEMBERED_SECONDS = 1.0


def reading_rules(settings: Settings) -> ReadingRules:
    """Links are followed: what counts is where a path really leads."""
    roots, data_dir = tuple(map(str, settings.storage_roots)), str(settings.data.dir)
    storage_dir = _storage_dir(settings.storage.url)
    return ReadingRules(
        roots=roots,
        data_dir=data_dir,
        storage_dir=storage_dir,
        fetch_allow=settings.fetch.allow,
        real_path=RealPaths(frozenset({*roots, data_dir, storage_dir})),
    )


class RealPaths:
    """Where paths really lead; for the configured directories, which every check asks about, as of a moment ago."""

    def __init__(self, configured: frozenset[str], clock: Callable[[], float] = time.monotonic) -> None:
        self._configured, self._clock = configured, clock
        self._known: dict[str, tuple[float, str]] = {}

    def __call__(self, path: str) -> str:
        if path not in self._configured:
            return _real_path(path)
        known, now = self._known.get(path), self._clock()
        if known is None or now - known[0] > REMEMBERED_SECONDS:
            known = self._known[path] = (now, _real_path(path))
        return known[1]


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
