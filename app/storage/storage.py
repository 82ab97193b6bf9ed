"""The storage of checkpoints, artifacts and logs: one class over local files and fsspec file systems.

Errors: NotFound, BadKey and RefusedFile (both InvalidRequest), TransientStorageError for retryable failures, and
StorageRefused for permanent ones.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import BinaryIO, Protocol, cast

from app.storage.failures import translated
from app.storage.object_keys import BadKey, checked_key
from app.storage.pending import PendingWriter, Unfinished
from app.storage.trees import Known

# Scheme → class. Everything else goes through fsspec.
LOCAL_SCHEME = "file"
LOCAL = "app.storage.local:LocalFiles"
REMOTE = "app.storage.remote:RemoteFiles"
_CREDENTIALS = re.compile(r"://[^/]*@")  # removed from shown URIs, which every member of a project can read


@dataclass(frozen=True)
class StoredFile:
    key: str
    size_bytes: int


class StorageAdapter(Protocol):
    """The interface of a storage adapter; keys are validated by the caller. Adapters raise OSError."""

    def path(self, key: str) -> Path | None: ...
    def put_tree(self, directory: Path, key: str, *, move: bool, known: Known | None) -> None: ...
    def fetch_tree(self, key: str, directory: Path) -> None: ...
    def open(self, key: str, offset: int) -> BinaryIO: ...
    def size(self, key: str) -> int: ...
    def files(self, key: str) -> list[tuple[str, int]]: ...
    def names(self, key: str) -> list[str]: ...
    def begin(self, key: str) -> Unfinished: ...
    def write(self, key: str, data: bytes) -> None: ...
    def grow(self, key: str, *, offset: int, tail: bytes, whole: bytes) -> None: ...
    def delete_tree(self, key: str) -> None: ...
    def exists(self, key: str) -> bool: ...
    def sweep(self, key: str, older_than_seconds: float) -> int: ...


class Storage:
    """``Storage("file:///srv/files")`` or any URL supported by fsspec. Thread-safe."""

    def __init__(self, url: str) -> None:
        self._url = url.rstrip("/")
        self._shown = _CREDENTIALS.sub("://", self._url)
        self._files = _adapter(self._url)

    def uri(self, key: str) -> str:
        """The URI of a key for records and responses; it identifies the storage, should that move later."""
        return f"{self._shown}/{checked_key(key)}"

    def key_of(self, uri: str) -> str:
        """The key of a URI from ``uri``. Raises BadKey for a URI of another storage."""
        for url in (self._shown, self._url):  # earlier releases recorded URIs with credentials
            if uri.startswith(f"{url}/"):
                return checked_key(uri.removeprefix(f"{url}/"))
        raise BadKey(f"{uri!r} is not in the configured storage {self._shown}")

    def local_path(self, key: str) -> Path | None:
        """The local path of a key, existing or not; None for remote storage."""
        return self._files.path(checked_key(key))

    def put_tree(self, local_dir: Path, key: str, *, move: bool = True, known: Known | None = None) -> None:
        """Store a directory atomically, replacing an existing one. ``move`` consumes the source.

        On errors the source is unchanged. Raises RefusedFile if the source is a link, contains anything but files,
        directories and links that stay inside, or differs from the ``known`` files. Copied files are hashed and
        compared with the known digests; renamed trees are not, so only this process should have access to them.
        """
        with translated(f"{key} (from {local_dir})"):
            self._files.put_tree(local_dir, checked_key(key), move=move, known=known)

    def fetch_tree(self, key: str, local_dir: Path) -> None:
        """Copy a stored directory into ``local_dir``. Raises NotFound if it does not exist."""
        with translated(key):
            if not self._files.exists(checked_key(key)):
                raise FileNotFoundError(key)
            self._files.fetch_tree(key, local_dir)

    @contextmanager
    def create(self, key: str) -> Iterator[PendingWriter]:
        """Store one file of any size as it arrives; it is visible once the block has ended without an exception."""
        writer = self.begin(key)
        try:
            yield writer
        except BaseException:
            writer.discard()
            raise
        writer.commit()

    def begin(self, key: str) -> PendingWriter:
        """As `create`, for a caller that commits or discards it by itself."""
        with translated(key):
            return PendingWriter(key, self._files.begin(checked_key(key)))

    def write(self, key: str, data: bytes) -> None:
        """Store one small file atomically."""
        with translated(key):
            self._files.write(checked_key(key), data)

    def grow(self, key: str, *, offset: int, tail: bytes, whole: bytes) -> None:
        """Append ``tail`` to a file of size ``offset``; ``whole`` is the resulting content."""
        with translated(key):
            self._files.grow(checked_key(key), offset=offset, tail=tail, whole=whole)

    def open(self, key: str, offset: int = 0) -> BinaryIO:
        """Read a file from ``offset`` on; the caller closes it."""
        with translated(key):
            return self._files.open(checked_key(key), offset)

    def read(self, key: str, offset: int = 0) -> bytes:
        with self.open(key, offset) as stream, translated(key):
            return stream.read()

    def size(self, key: str) -> int:
        with translated(key):
            return self._files.size(checked_key(key))

    def list(self, prefix: str) -> tuple[StoredFile, ...]:
        """Every file below, sorted by key; empty when there is nothing."""
        with translated(prefix):
            return tuple(StoredFile(*found) for found in self._files.files(checked_key(prefix)))

    def names(self, prefix: str) -> tuple[str, ...]:
        """Files and folders directly below, sorted; empty when there is nothing."""
        with translated(prefix):
            return tuple(self._files.names(checked_key(prefix)))

    def delete_tree(self, key: str) -> None:
        """Delete a file or a directory; idempotent, so that an interrupted deletion can be repeated."""
        with translated(key):
            self._files.delete_tree(checked_key(key))

    def sweep(self, prefix: str, *, older_than_seconds: float) -> int:
        """Delete partially written or deleted entries directly below that were abandoned; returns their number."""
        with translated(prefix):
            return self._files.sweep(checked_key(prefix), older_than_seconds)

    def exists(self, key: str) -> bool:
        with translated(key):
            return self._files.exists(checked_key(key))


def _adapter(url: str) -> StorageAdapter:
    scheme, separator, rest = url.partition("://")
    if not separator:
        raise BadKey(f"{url!r} is not a storage URL; use one such as file:///srv/trainyard or s3://bucket/folder")
    target, argument = (LOCAL, rest) if scheme == LOCAL_SCHEME else (REMOTE, url)
    # Imported lazily: fsspec takes 0.1 s to import, and most installations use local files.
    module, _, name = target.partition(":")
    return cast("StorageAdapter", getattr(import_module(module), name)(argument))
