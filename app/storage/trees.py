"""Which files of a local directory get stored: what a job wrote must not smuggle anything else in."""

import os
import shutil
import stat
from dataclasses import dataclass
from pathlib import Path

from app.domain.errors import InvalidRequest
from app.storage.keys import TEMPORARY, checked_key


class RefusedFile(InvalidRequest):
    """A link that leads out of the directory, a device, a pipe or a socket."""


@dataclass(frozen=True)
class TreeFile:
    """``path`` is relative to the directory; ``source`` is the file that holds its bytes."""

    path: str
    source: Path
    is_link: bool


def tree_files(directory: Path) -> list[TreeFile]:
    """Every file below the directory, sorted by path.

    A link to a file inside stands for that file. A link to a directory inside is left out: its files are there under
    their own names. Anything that leads out raises RefusedFile, because reading it later would show somebody else's;
    so does a directory that is itself a link, for it stands for whatever its maker pointed it at.
    """
    if not stat.S_ISDIR(directory.lstat().st_mode):
        raise RefusedFile(f"{directory.name} is not a directory but a link or a file; only a directory can be stored")
    root = directory.resolve(strict=True)
    found = []
    for folder, folders, names in os.walk(root, onerror=_raise):
        for name in sorted(folders + names):
            entry = Path(folder, name)
            source = _source(entry, root)
            if source is not None:
                path = checked_key(str(entry.relative_to(root)))
                found.append(TreeFile(path, source, is_link=entry.is_symlink()))
    return sorted(found, key=lambda file: file.path)


def replace_links(directory: Path) -> None:
    """Turn links to files inside into copies and drop links to directories inside, so that the tree can be moved."""
    files = tree_files(directory)
    for file in files:
        if file.is_link:
            _replace_by_copy(directory / file.path, file.source)
    linked = [Path(folder, name) for folder, folders, _ in os.walk(directory, onerror=_raise) for name in folders]
    for path in linked:
        if path.is_symlink():
            path.unlink()


def _replace_by_copy(link: Path, source: Path) -> None:
    """By way of a second name: a copy that fails half-way leaves the link, so the next try finds what this one did."""
    copy = link.with_name(f"{TEMPORARY}copy")
    try:
        shutil.copyfile(source, copy)
        copy.replace(link)
    finally:
        copy.unlink(missing_ok=True)


def _source(entry: Path, root: Path) -> Path | None:
    mode = entry.lstat().st_mode
    if stat.S_ISREG(mode):
        return entry
    if stat.S_ISDIR(mode):
        return None
    if not stat.S_ISLNK(mode):
        raise RefusedFile(f"{entry.relative_to(root)} is neither a file nor a directory; only those can be stored")
    target = Path(os.path.realpath(entry))  # unlike Path.resolve, it does not raise on links that go in circles
    if target.is_symlink() or not target.is_relative_to(root) or not target.exists():
        raise RefusedFile(
            f"{entry.relative_to(root)} is a link that leads out of the directory or nowhere; copy the file"
        )
    return target if target.is_file() else None


def _raise(error: OSError) -> None:
    raise error
