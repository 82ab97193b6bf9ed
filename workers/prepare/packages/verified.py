"""What a built environment must be before anything of this machine uses it: code of a build may have made its entries.

All processes of the build have ended; nothing of it changes meanwhile.
"""

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from app.storage.beneath import DIRECTORY, RefusedFile, directory_opened, file_opened
from workers.attempt_failed import AttemptFailed
from workers.prepare.packages.failures import FIELD

_INFO = ".dist-info"
_METADATA_BYTES, _ALL_METADATA_BYTES = 256 << 10, 64 << 20  # that are read: descriptions follow what we look for
_MOST_ENTRIES, _DEEPEST = 1_000_000, 64
_MOST_PACKAGES = 4000
_LONGEST = 100  # of names and versions, in messages
_LIBRARY = "lib"
_SITE = "site-packages"


@dataclass(frozen=True, kw_only=True)
class Skeleton:
    """A new environment before packages are installed: which directory it is, and its links with their targets."""

    inode: tuple[int, int]
    links: dict[str, str]


@dataclass(frozen=True, kw_only=True)
class Metadata:
    """Of one installed package."""

    name: str
    version: str
    needs: tuple[str, ...]


def skeleton_of(environment: Path) -> Skeleton:
    found = environment.lstat()
    return Skeleton(inode=(found.st_dev, found.st_ino), links=dict(_links(environment)))


def verify(environment: Path, before: Skeleton, minor: str) -> None:
    """Refuse an environment that is another directory, or has other links, devices or pipes. Raises AttemptFailed."""
    try:
        found = environment.lstat()
        if not stat.S_ISDIR(found.st_mode) or (found.st_dev, found.st_ino) != before.inode:
            raise _refused("the environment was replaced by something else")
        for path, target in _links(environment):
            if before.links.get(path) != target:
                raise _refused(f"{path!r:.200} is a link")
        with site_packages_opened(environment, minor):
            pass
    except OSError as error:
        raise _refused(f"the environment can't be read ({error.strerror})") from error


@contextmanager
def site_packages_opened(environment: Path, minor: str) -> Iterator[int]:
    """The directory of the environment's packages, reached through no link. Raises AttemptFailed."""
    descriptors: list[int] = []
    try:
        try:
            with directory_opened(environment) as root:
                descriptors.append(os.dup(root))
            for name in (_LIBRARY, f"python{minor}", _SITE):
                descriptors.append(os.open(name, DIRECTORY, dir_fd=descriptors[-1]))
        except (OSError, RefusedFile) as error:
            raise _refused(f"{_LIBRARY}/python{minor}/{_SITE} is not a directory of the environment") from error
        yield descriptors[-1]
    finally:
        for descriptor in descriptors:
            os.close(descriptor)


def installed(environment: Path, minor: str) -> list[str]:
    """NAME==VERSION of each package. Raises AttemptFailed."""
    with site_packages_opened(environment, minor) as site:
        return sorted(name.removesuffix(_INFO).replace("-", "==", 1) for name in _info_directories(site))


def metadata(environment: Path, minor: str) -> Iterator[Metadata]:
    """Of each package that says it in a regular file. Raises AttemptFailed."""
    from email.parser import HeaderParser  # noqa: PLC0415 – slow to import, and most jobs have no packages

    left = _ALL_METADATA_BYTES
    with site_packages_opened(environment, minor) as site:
        for name in sorted(_info_directories(site)):
            try:
                with file_opened(site, f"{name}/METADATA") as file:
                    text = file.read(_METADATA_BYTES).decode(errors="replace")
            except (OSError, RefusedFile):
                continue
            left -= len(text)
            if left < 0:
                raise _refused(f"the METADATA of the packages has more than {_ALL_METADATA_BYTES} bytes")
            headers = HeaderParser().parsestr(text)
            yield Metadata(
                name=str(headers["Name"])[:_LONGEST],
                version=str(headers["Version"])[:_LONGEST],
                needs=tuple(map(str, headers.get_all("Requires-Dist", []))),
            )


def _info_directories(site: int) -> list[str]:
    with os.scandir(site) as entries:
        found = []
        for entry in entries:
            if entry.name.endswith(_INFO) and entry.is_dir(follow_symlinks=False):
                found.append(entry.name)
            if len(found) > _MOST_PACKAGES:
                raise _refused(f"there are more than {_MOST_PACKAGES} packages")
    return found


def _links(environment: Path) -> Iterator[tuple[str, str]]:
    """(path, target) of the links in the directory. Raises AttemptFailed, OSError."""
    count, waiting = 0, [("", 0)]
    while waiting:
        current, depth = waiting.pop()
        with os.scandir(environment / current) as entries:
            for entry in entries:
                path, count = f"{current}/{entry.name}".lstrip("/"), count + 1
                if count > _MOST_ENTRIES or depth > _DEEPEST:
                    raise _refused(f"there are more than {_MOST_ENTRIES} files, or {_DEEPEST} directories in another")
                if entry.is_symlink():
                    yield path, str(Path(entry.path).readlink())
                elif entry.is_dir(follow_symlinks=False):
                    waiting.append((path, depth + 1))
                elif not entry.is_file(follow_symlinks=False):
                    raise _refused(f"{path!r:.200} is neither a file nor a directory")


def _refused(why: str) -> AttemptFailed:
    return AttemptFailed(
        "PACKAGES_FAILED", f"{FIELD}: what was installed is refused: {why}; packages are directories and files"
    )
