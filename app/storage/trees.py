"""Selects and copies the files of a local directory to store; links must not expose files outside of it."""

import os
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from app.storage.beneath import FileDigest, RefusedFile, changed, copied, directory_opened, file_opened
from app.storage.object_keys import TEMPORARY, checked_key

# Path in a directory → expected size and digest.
Known = Mapping[str, FileDigest]


@dataclass(frozen=True)
class TreeFile:
    """A file to store; ``path`` and ``source``, the file with its content, are relative to the directory."""

    path: str
    source: str
    size_bytes: int

    @property
    def is_link(self) -> bool:
        return self.path != self.source


def tree_files(directory: Path) -> list[TreeFile]:
    """Every file below the directory, sorted by path; see ``walked``."""
    return sorted(walked(directory), key=lambda file: file.path)


def walked(directory: Path) -> Iterator[TreeFile]:
    """Every file below the directory, lazily, because there may be millions.

    A link to a file inside represents that file. A link to a directory inside is skipped: its files are listed under
    their own names. A link that leads outside raises RefusedFile, because reading it could expose foreign files; so
    does a directory that is itself a link, which may point anywhere.
    """
    if not stat.S_ISDIR(directory.lstat().st_mode):
        raise RefusedFile(f"{directory.name} is not a directory but a link or a file; only a directory can be stored")
    root = directory.resolve(strict=True)
    for folder, folders, names in os.walk(root, onerror=_raise):
        for name in sorted(folders + names):
            entry = Path(folder, name)
            source = _source(entry, root)
            if source is not None:
                path = checked_key(str(entry.relative_to(root)))
                yield TreeFile(path, str(source.relative_to(root)), source.lstat().st_size)


def source_of(directory: Path, path: str) -> str:
    """The relative path of the file with the content of ``path``. Raises RefusedFile."""
    root = directory.resolve(strict=True)
    source = _source(root / path, root)
    if source is None:
        raise RefusedFile(f"{path} is a directory")
    return str(source.relative_to(root))


def files_of(directory: Path, known: Known | None) -> list[TreeFile]:
    """The files of the directory, which must match the known paths and sizes. Raises RefusedFile."""
    files = tree_files(directory)
    if known is None:
        return files
    for file in files:
        if file.path not in known or file.size_bytes != known[file.path].size_bytes:
            raise changed(file.path)
    if missing := sorted(known.keys() - {file.path for file in files}):
        raise changed(missing[0])
    return files


def copy_tree(directory: Path, target: Path, known: Known | None = None) -> None:
    """Copy the files into the new directory ``target``, verifying known digests. Raises RefusedFile."""
    files = files_of(directory, known)
    target.mkdir()
    with directory_opened(directory) as root:
        for file in files:
            destination = target / file.path
            destination.parent.mkdir(parents=True, exist_ok=True)
            check(file, _copied(root, file, destination), known)


def check(file: TreeFile, content: FileDigest, known: Known | None) -> None:
    """Raises RefusedFile if the content differs from the known one."""
    if known is not None and content != known[file.path]:
        raise changed(file.path)


def replace_links(directory: Path) -> None:
    """Replace links to files inside by copies and remove links to directories inside, so that the tree can be moved."""
    files = tree_files(directory)
    with directory_opened(directory) as root:
        for file in files:
            if file.is_link:
                _replace_by_copy(root, file, directory / file.path)
    linked = [Path(folder, name) for folder, folders, _ in os.walk(directory, onerror=_raise) for name in folders]
    for path in linked:
        if path.is_symlink():
            path.unlink()


def _copied(root: int, file: TreeFile, destination: Path) -> FileDigest:
    with file_opened(root, file.source) as source, destination.open("xb", buffering=0) as written:
        return copied(source, file.path, lambda block: _write(written.fileno(), block))


def _write(descriptor: int, block: bytes) -> None:
    view = memoryview(block)
    while view:
        view = view[os.write(descriptor, view) :]


def _replace_by_copy(root: int, file: TreeFile, link: Path) -> None:
    """Replace a link by a copy through a temporary name: a failed copy leaves the link, and can be retried."""
    copy = link.with_name(f"{TEMPORARY}copy")
    copy.unlink(missing_ok=True)
    try:
        _copied(root, file, copy)
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
    target = Path(os.path.realpath(entry))  # unlike Path.resolve, it does not raise on circular links
    if target.is_symlink() or not target.is_relative_to(root) or not target.exists():
        raise RefusedFile(
            f"{entry.relative_to(root)} is a link that leads out of the directory or nowhere; copy the file"
        )
    return target if target.is_file() else None


def _raise(error: OSError) -> None:
    raise error
