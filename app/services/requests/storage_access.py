"""Reading rules of this process: the directories that jobs may read."""

import os
import stat
import time
from collections.abc import Callable

from app.domain.spec.locations.paths import ReadingRules
from app.storage.storage import LOCAL_SCHEME
from config.settings import Settings

REMEMBERED_SECONDS = 1.0
_MOST_DIRECTORIES = 32  # of a path whose directories are remembered: each of them holds the text of all above it


def reading_rules(settings: Settings) -> ReadingRules:
    """Rules from the settings; links are resolved, so that real paths decide."""
    roots, data_dir = tuple(map(str, settings.storage_roots)), str(settings.data.dir)
    storage_dir, claims_dir = _storage_dir(settings.storage.url), str(settings.fetch.pvc_dir or "")
    real_paths = RealPaths(frozenset({*roots, data_dir, storage_dir, claims_dir}))
    return ReadingRules(
        roots=roots,
        data_dir=data_dir,
        storage_dir=storage_dir,
        output_roots=tuple(map(str, settings.storage.output_roots)),
        claims_dir=claims_dir,
        shared_claims=settings.fetch.pvc_shared,
        writable_claims=settings.fetch.pvc_shared_writable,
        fetch_allow=settings.fetch.allow,
        tracking_allow=settings.tracking.allow,
        image_sources=settings.images.sources,
        image_digests=settings.images.require_digest,
        packages=settings.packages.enabled,
        knows_groups=bool(settings.oidc.issuer),
        real_path=real_paths,
        remembering_real_path=real_paths.remembering,
    )


class RealPaths:
    """Resolves paths; results for the configured directories, which every check needs, are cached for a moment."""

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

    def remembering(self) -> Callable[[str], str]:
        """As this object, for a moment in which links do not change: each directory is resolved once.

        Paths of many directories are resolved as a whole, and nothing of them is remembered.
        """
        known: dict[str, str] = {}

        def real_path(path: str) -> str:
            if path in self._configured or path.count("/") > _MOST_DIRECTORIES:
                return self(path)
            if not path.startswith("/") or path != os.path.normpath(path):
                return self(path)
            above = place = ""
            for name in path.split("/")[1:]:
                above = f"{above}/{name}"
                if (found := known.get(above)) is None:
                    found = known[above] = self._below(place, name, above)
                place = found
            return place

        return real_path

    def _below(self, place: str, name: str, path: str) -> str:
        """Where ``path`` leads, whose directory leads to ``place``.

        A link is followed from ``place``: from ``path``, all links above it would be followed again.
        """
        if path in self._configured:
            return self(path)
        found = f"{place.rstrip('/')}/{name}"
        if _is_link(found):
            return self(found)
        return path if found == path else found  # one text for both, where no link is above


def _real_path(path: str) -> str:
    """Resolve links as far as permitted; otherwise normalize the path."""
    try:
        return os.path.realpath(path)
    except OSError:
        return os.path.normpath(path)


def _is_link(path: str) -> bool:
    """What can't be examined counts as none, as for `os.path.realpath`."""
    try:
        return stat.S_ISLNK(os.lstat(path).st_mode)
    except OSError:
        return False


def _storage_dir(url: str) -> str:
    """Directory of a storage on the local disk; empty for any other URL."""
    scheme, _, path = url.partition("://")
    return path.rstrip("/") if scheme == LOCAL_SCHEME else ""
