"""Local files, used in place: listed like any other storage, and checked before they are opened."""

import os
import stat
from collections.abc import Callable, Iterable
from pathlib import Path

from app.domain.spec.locations.paths import within
from app.storage.beneath import resolved
from config.fetching import FetchSettings
from workers.fetching.failures import FetchRefused, NotThere
from workers.fetching.listing import ListedPath
from workers.fetching.uris import VOLUMES, volume

CLAIMS = "pvc"  # the scheme of volume claims
CLAIM_MODE = 0o700  # of a new one: other users of the machine reach no files of jobs, which belong to the worker


class LocalLister:
    """A lister that follows links only if ``allowed`` accepts the resolved path."""

    def __init__(self, allowed: Callable[[str], bool]) -> None:
        self._allowed = allowed

    def info(self, path: str) -> ListedPath | None:
        try:
            status = Path(path).stat()
        except OSError:
            return None
        if not self._allowed(resolved(path)):
            return ListedPath(path=path, kind="forbidden")
        return ListedPath(path=path, kind=_kind(status.st_mode), size=status.st_size)

    def children(self, path: str) -> Iterable[ListedPath]:
        try:
            entries = self._entries(path)
        except NotADirectoryError:
            return
        except OSError as error:
            raise NotThere(f"{path} can't be read: {error.strerror}") from error
        for each in entries:
            found = self.info(each)
            if found is not None:  # otherwise a dangling link
                yield found

    def _entries(self, path: str) -> list[str]:
        """No paths where a link was put in place of the directory since it was found. Raises OSError."""
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            opened = Path(f"/proc/self/fd/{descriptor}")
            if not self._allowed(str(opened.readlink())):
                return []
            return sorted(f"{path.rstrip('/')}/{entry.name}" for entry in opened.iterdir())
        finally:
            os.close(descriptor)


def volumes_of(fetch: FetchSettings, location: str, project: str) -> Path | None:
    """The directory in which the volume of a URI lies; None where this node has none.

    A claim belongs to a project, unless the operator shares it; a bucket belongs to all. Raises FetchRefused.
    """
    where = volume(location)
    directory = fetch.directory_of(where.scheme)
    is_own = where.scheme == CLAIMS and where.container not in fetch.pvc_shared
    if is_own and project in fetch.pvc_shared:  # jobs of all projects may put links in place of its claims
        raise FetchRefused(
            f"the project {project} has the name of a claim of all projects; have the administrator rename it"
        )
    return directory / project if directory is not None and is_own else directory


def claimed(fetch: FetchSettings, location: str, project: str) -> tuple[str, str]:
    """(path, directory of the volume) of a URI whose volumes are directories of this node, links resolved.

    Raises FetchRefused, NotThere.
    """
    directory, where = volumes_of(fetch, location, project), volume(location)
    if directory is None:
        raise FetchRefused("this node has no volume claims; have the administrator set TRAINYARD_FETCH_PVC_DIR")
    base = resolved(directory / where.container)
    if not os.path.isdir(base):  # noqa: PTH112 – never raises
        of_project = f" of the project {project}" if directory.name == project else ""
        raise NotThere(f"this node has no {VOLUMES[where.scheme]} {where.container}{of_project}")
    path = resolved(Path(base, where.path))
    if not within(path, base):
        raise FetchRefused(f"it leaves the {VOLUMES[where.scheme]} {where.container}")
    return path, base


def _kind(mode: int) -> str:
    if stat.S_ISDIR(mode):
        return "directory"
    return "file" if stat.S_ISREG(mode) else "special"
