"""Local file storage: everything is written under a temporary name, fsynced, then renamed."""

import contextlib
import errno
import os
import secrets
import shutil
import stat
import time
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from app.storage.beneath import copied, directory_opened, file_opened
from app.storage.object_keys import TEMPORARY, BadKey
from app.storage.trees import Known, copy_tree, files_of, replace_links
from trainyard.protocol.durability import sync


class LocalFiles:
    """Storage in a directory. Completed writes survive a power failure."""

    def __init__(self, root: str) -> None:
        self._root = Path(root).absolute()
        self._resolved = self._root.resolve()

    def path(self, key: str) -> Path | None:
        """The path of a key, existing or not."""
        return self._at(key)

    def put_tree(self, directory: Path, key: str, *, move: bool, known: Known | None) -> None:
        """Store a directory. If this raises, a source to be moved is restored to its original place."""
        target = self._at(key)
        files_of(directory, known)  # before removing leftovers, which may contain a missing source
        _make_parents(target, self._root)
        _remove_leftovers(target)
        temporary = _temporary(target)
        if move and _moved(directory, temporary):
            with _moved_back(temporary, target, directory):
                _replace(temporary, target)
        else:
            copy_tree(directory, temporary, known)
            _sync_tree(temporary)
            _replace(temporary, target)
            if move:
                shutil.rmtree(directory, ignore_errors=True)
        with contextlib.suppress(OSError):  # the new tree is stored even if the old one can't be removed
            _remove_leftovers(target)

    def fetch_tree(self, key: str, directory: Path) -> None:
        source = self._at(key)
        for stored in self.files(key):
            relative = stored[0].removeprefix(f"{key}/")
            destination = directory / relative
            destination.parent.mkdir(parents=True, exist_ok=True)
            with directory_opened(source) as root, file_opened(root, relative) as file, destination.open("wb") as copy:
                copied(file, relative, copy.write)

    def open(self, key: str, offset: int) -> BinaryIO:
        # Without O_NONBLOCK, opening a pipe placed into the storage by hand would block forever.
        descriptor = os.open(self._at(key), os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        stream = os.fdopen(descriptor, "rb") if _is_file(descriptor) else None
        if stream is None:
            os.close(descriptor)
            raise IsADirectoryError(errno.EISDIR, "not a file", key)
        stream.seek(offset)
        return stream

    def size(self, key: str) -> int:
        path = self._at(key)
        if path.is_dir():
            raise IsADirectoryError(errno.EISDIR, "a directory", key)
        return path.stat().st_size

    def files(self, key: str) -> list[tuple[str, int]]:
        """(key, size) of every file below; empty when there is nothing."""
        return sorted(self._walk(self._at(key)))

    def names(self, key: str) -> list[str]:
        """Files and folders directly below; empty when there is nothing."""
        try:
            found = [entry.name for entry in os.scandir(self._at(key))]
        except (FileNotFoundError, NotADirectoryError):
            return []
        return sorted(name for name in found if not name.startswith(TEMPORARY))

    def begin(self, key: str) -> "LocalUnfinished":
        target = self._at(key)
        _make_parents(target, self._root)
        return LocalUnfinished(target)

    def write(self, key: str, data: bytes) -> None:
        unfinished = self.begin(key)
        unfinished.write(data)
        unfinished.commit()

    def grow(self, key: str, *, offset: int, tail: bytes, whole: bytes) -> None:
        """Write ``tail`` at ``offset``, the end of valid data; idempotent after a failure.

        Not fsynced: a power failure may lose the last seconds of log lines, which are not worth a flush each.
        """
        del whole
        target = self._at(key)
        if offset == 0:
            _make_parents(target, self._root)
        descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644)
        with os.fdopen(descriptor, "wb", buffering=0) as stream:
            if os.fstat(descriptor).st_size != offset:  # a previous write was torn
                stream.truncate(offset)
            stream.seek(offset)
            view = memoryview(tail)
            while view:
                view = view[stream.write(view) :]

    def delete_tree(self, key: str) -> None:
        """Delete atomically for readers; a second call completes an interrupted one."""
        target = self._at(key)
        with contextlib.suppress(FileNotFoundError):
            target.rename(_temporary(target))
            sync(target.parent)
        _remove_leftovers(target)

    def exists(self, key: str) -> bool:
        return self._at(key).exists()

    def sweep(self, key: str, older_than_seconds: float) -> int:
        """Delete leftovers of dead writers and deleters directly below the key; returns their number."""
        try:
            entries = [entry for entry in os.scandir(self._at(key)) if entry.name.startswith(TEMPORARY)]
        except (FileNotFoundError, NotADirectoryError):
            return 0
        swept = 0
        for entry in entries:
            with contextlib.suppress(FileNotFoundError):  # removed by its owner
                # The change time, which a rename updates, unlike the modification time.
                if time.time() - entry.stat(follow_symlinks=False).st_ctime > older_than_seconds:
                    _remove(Path(entry.path))
                    swept += 1
        return swept

    def _at(self, key: str) -> Path:
        path = self._root / key
        # Key names are validated elsewhere; this catches links placed into the storage by hand.
        if not path.resolve().is_relative_to(self._resolved):
            raise BadKey(f"{key!r} is not a valid storage key: a link leads out of the storage")
        return path

    def _walk(self, start: Path) -> Iterator[tuple[str, int]]:
        if start.is_file():
            yield str(start.relative_to(self._root)), start.stat().st_size
            return
        for folder, folders, names in os.walk(start):
            folders[:] = [name for name in folders if not name.startswith(TEMPORARY)]
            for name in names:
                path = Path(folder, name)
                if not name.startswith(TEMPORARY) and not path.is_symlink():
                    with contextlib.suppress(FileNotFoundError):  # deleted meanwhile
                        yield str(path.relative_to(self._root)), path.stat().st_size


class LocalUnfinished:
    """A file under a temporary name; leftovers of dead writers are swept."""

    def __init__(self, target: Path) -> None:
        self._target = target
        self._temporary = _temporary(target)
        self._stream = self._temporary.open("xb", buffering=0)

    def write(self, data: bytes | memoryview) -> None:
        view = memoryview(data)
        while view:
            view = view[self._stream.write(view) :]

    def commit(self) -> None:
        os.fsync(self._stream.fileno())
        self._stream.close()
        self._temporary.replace(self._target)
        sync(self._target.parent)

    def discard(self) -> None:
        self._stream.close()
        self._temporary.unlink(missing_ok=True)


def _is_file(descriptor: int) -> bool:
    return stat.S_ISREG(os.fstat(descriptor).st_mode)


def _temporary(target: Path) -> Path:
    return target.parent / f"{TEMPORARY}{secrets.token_hex(4)}-{target.name}"


def _remove_leftovers(target: Path) -> None:
    # One writer per key at a time (it holds the job's lease), so leftovers of this name belong to dead writers.
    with contextlib.suppress(FileNotFoundError):
        for entry in list(target.parent.iterdir()):
            if entry.name.startswith(TEMPORARY) and entry.name[len(TEMPORARY) + 9 :] == target.name:
                _remove(entry)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _moved(directory: Path, target: Path) -> bool:
    """Flush and rename the directory; False if the source is on another file system."""
    replace_links(directory)
    if directory.stat().st_dev != target.parent.stat().st_dev:
        return False
    _sync_tree(directory)
    try:
        directory.rename(target)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        return False
    return True


@contextlib.contextmanager
def _moved_back(temporary: Path, target: Path, source: Path) -> Iterator[None]:
    """Move the source back if a step after its move fails: there is no other copy."""
    try:
        yield
    except OSError:
        # It has its final name only if the flush after the rename failed; an older tree was removed before.
        moved = temporary if temporary.exists() else target
        moved.rename(source)
        raise


def _replace(temporary: Path, target: Path) -> None:
    if target.exists():
        # A directory cannot be renamed onto a non-empty one. This key has no readers: it was never recorded.
        target.rename(_temporary(target))
    temporary.rename(target)
    sync(target.parent)


def _make_parents(target: Path, root: Path) -> None:
    missing = [folder for folder in target.parents if folder.is_relative_to(root) and not folder.exists()]
    for folder in reversed(missing):
        folder.mkdir(parents=True, exist_ok=True)
        sync(folder.parent)


def _sync_tree(directory: Path) -> None:
    for folder, _, names in os.walk(directory):
        for name in names:
            # A rank may still hold the directory open and swap a file for a link or a pipe.
            sync(Path(folder, name), os.O_NOFOLLOW | os.O_NONBLOCK)
        sync(Path(folder))
