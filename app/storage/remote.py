"""Remote storage through fsspec. Object stores have no atomic rename: a tree is complete once its manifest exists.

Single objects are written atomically, therefore the manifest is uploaded last and nothing is recorded before.
"""

import os
import shutil
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, BinaryIO

import fsspec

from app.storage.beneath import RefusedFile, changed, copied, directory_opened, file_opened
from app.storage.trees import Known, TreeFile, check, files_of

MANIFEST = "manifest.json"
BLOCK_BYTES = 8 << 20  # of a file that is written as it arrives; S3 takes at most 10,000 blocks of at least 5 MiB
FILES_AT_ONCE = 64  # each uses a descriptor, and the default limit is 1024


class RemoteFiles:
    """A bucket or any other fsspec file system; credentials come from the adapter's own environment."""

    def __init__(self, url: str) -> None:
        # skip_instance_cache: an instance is bound to its process and event loop.
        self._fs, root = fsspec.core.url_to_fs(url, skip_instance_cache=True, use_listings_cache=False)
        self._root = str(root).rstrip("/")

    def path(self, key: str) -> Path | None:
        del key
        return None

    def put_tree(self, directory: Path, key: str, *, move: bool, known: Known | None) -> None:
        files = files_of(directory, known)
        self.delete_tree(key)
        bulk = [file for file in files if file.path != MANIFEST]
        last = [file for file in files if file.path == MANIFEST]
        try:
            with directory_opened(directory) as root:
                for first in range(0, len(bulk), FILES_AT_ONCE):
                    self._put(root, bulk[first : first + FILES_AT_ONCE], key, known)
                if last:
                    self._put(root, last, key, known)
        except RefusedFile:
            # It will not be tried again, and no record names a part of a tree. Other errors are tried again, from
            # the deletion above on.
            with suppress(Exception):
                self.delete_tree(key)
            raise
        if move:
            # All is stored: failing to delete the source must not cause another upload.
            shutil.rmtree(directory, ignore_errors=True)

    def _put(self, root: int, files: Sequence[TreeFile], key: str, known: Known | None) -> None:
        """Upload the opened and verified files, even if their names are replaced meanwhile."""
        with ExitStack() as stack:
            opened = [stack.enter_context(file_opened(root, file.source)) for file in files]
            before = [_state(source) for source in opened]
            for file, source in zip(files, opened, strict=True):
                check(file, copied(source, file.path), known)
            # With two lists, fsspec expands no glob patterns and uploads in parallel where possible.
            self._fs.put(
                [f"/proc/self/fd/{source.fileno()}" for source in opened],
                [self._at(f"{key}/{file.path}") for file in files],
            )
            for file, source, state in zip(files, opened, before, strict=True):
                if _state(source) != state:
                    raise changed(file.path)

    def fetch_tree(self, key: str, directory: Path) -> None:
        stored = [name for name, _ in self.files(key)]
        targets = [directory / name.removeprefix(f"{key}/") for name in stored]
        for target in targets:
            target.parent.mkdir(parents=True, exist_ok=True)
        if stored:
            self._fs.get([self._at(name) for name in stored], [str(target) for target in targets])

    def open(self, key: str, offset: int) -> BinaryIO:
        stream: BinaryIO = self._fs.open(self._at(key), "rb")
        stream.seek(offset)
        return stream

    def size(self, key: str) -> int:
        return int(self._fs.info(self._at(key))["size"])

    def files(self, key: str) -> list[tuple[str, int]]:
        found: dict[str, Any] = self._fs.find(self._at(key), detail=True)
        cut = len(self._at(""))
        return sorted((name[cut:], int(info["size"])) for name, info in found.items() if info["type"] == "file")

    def names(self, key: str) -> list[str]:
        try:
            found = self._fs.ls(self._at(key), detail=False)
        except (FileNotFoundError, NotADirectoryError):
            return []
        return sorted(str(name).rstrip("/").rsplit("/", 1)[-1] for name in found)

    def begin(self, key: str) -> "RemoteUnfinished":
        path = self._at(key)
        self._fs.makedirs(path.rsplit("/", 1)[0], exist_ok=True)
        # Without autocommit, the object appears at its commit, as in a transaction of fsspec.
        stream = self._fs.open(path, "wb", block_size=BLOCK_BYTES, autocommit=False)
        return RemoteUnfinished(stream, lambda: self.delete_tree(key))

    def write(self, key: str, data: bytes) -> None:
        path = self._at(key)
        self._fs.makedirs(path.rsplit("/", 1)[0], exist_ok=True)
        self._fs.pipe_file(path, data)

    def grow(self, key: str, *, offset: int, tail: bytes, whole: bytes) -> None:
        """Rewrite the whole object: objects cannot be appended to."""
        del offset, tail
        self.write(key, whole)

    def delete_tree(self, key: str) -> None:
        if self.exists(key):
            self._fs.rm(self._at(key), recursive=True)

    def sweep(self, key: str, older_than_seconds: float) -> int:
        """No-op: objects are written atomically, without temporary names."""
        del key, older_than_seconds
        return 0

    def exists(self, key: str) -> bool:
        return bool(self._fs.exists(self._at(key)))

    def _at(self, key: str) -> str:
        return f"{self._root}/{key}"


class RemoteUnfinished:
    """An object that is uploaded in blocks and does not exist before its commit.

    A few file systems of fsspec show it earlier; no record names it then, and ``delete`` drops it.
    """

    def __init__(self, stream: Any, delete: Callable[[], None]) -> None:  # noqa: ANN401 – a class of each file system
        self._stream, self._delete = stream, delete

    def write(self, data: bytes | memoryview) -> None:
        self._stream.write(data)

    def commit(self) -> None:
        self._stream.close()
        self._stream.commit()

    def discard(self) -> None:
        try:
            self._stream.close()
        finally:
            self._stream.discard()
            self._delete()


def _state(file: BinaryIO) -> tuple[int, int, int]:
    """Changes with every write; the change time is set by the kernel and can't be forged."""
    status = os.fstat(file.fileno())
    return status.st_size, status.st_mtime_ns, status.st_ctime_ns
