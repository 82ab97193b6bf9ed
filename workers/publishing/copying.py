"""Copies a model into a target directory: never overwrites foreign files, verifies the copy, and can be retried.

The first file is a marker that names the owner of the directory; it is updated when the copy is complete.
"""

import contextlib
import hashlib
import json
import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, BinaryIO, Protocol

from app.storage.beneath import RefusedFile, directory_opened, file_opened
from app.storage.trees import source_of
from workers.publishing.failures import AlreadyClaimed, NotPublished
from workers.publishing.orders import PublishedFile, PublishOrder
from workers.publishing.streams import stream_opened

MARKER = ".trainyard.json"
MAX_MARKER_BYTES = 16 << 20
Arrived = Callable[[int], None]  # called with the number of bytes moved: a sign of life


class PublishTarget(Protocol):
    """A directory that may not exist yet. ``folder`` is a subdirectory, or empty; paths are relative to it.

    Raises NotPublished, OSError.
    """

    def read(self, folder: str, path: str, most: int) -> bytes | None:
        """Content of a small file; None when it does not exist."""
        ...

    def is_free(self, folder: str) -> bool:
        """Whether the folder is missing or empty."""
        ...

    def claim(self, folder: str, path: str, data: bytes) -> None:
        """Write the first file. Raises AlreadyClaimed if it exists, where the storage can detect that."""
        ...

    def write(self, folder: str, path: str, data: bytes) -> None:
        """Write a small file atomically, replacing another."""
        ...

    def put(self, folder: str, file: PublishedFile, source: BinaryIO, arrived: Arrived) -> None:
        """The same with an open file of any size, or a stream."""
        ...

    def digest(self, folder: str, path: str, arrived: Arrived) -> tuple[int, str] | None:
        """Size and SHA-256 of the stored file; None when it does not exist."""
        ...

    def remove(self, folder: str, path: str) -> None:
        """A missing file is no error."""
        ...


def digest_of(blocks: Iterable[bytes], arrived: Arrived) -> tuple[int, str]:
    """Size and SHA-256 of a sequence of blocks."""
    digest, size = hashlib.sha256(), 0
    for block in blocks:
        digest.update(block)
        size += len(block)
        arrived(len(block))
    return size, digest.hexdigest()


def copy(place: PublishTarget, order: PublishOrder, arrived: Arrived) -> str:
    """The folder that the model was copied to: empty for the directory itself, else the job's id. Raises
    NotPublished.
    """
    if any(file.path == MARKER for file in order.files):
        raise NotPublished(
            f"the model contains a file {MARKER}, a name reserved for marking exported models; rename it"
        )
    for folder in ("", order.job_id):
        before = _take(place, folder, order)
        if before is not None:
            _fill(place, folder, order, before, arrived)
            return folder
    raise NotPublished(
        f"the directory contains foreign files, and so does {order.job_id} in it; name an empty directory"
    )


def _take(place: PublishTarget, folder: str, order: PublishOrder) -> set[str] | None:
    """The files that an earlier try may have left, if the directory is ours now; None when it has another owner."""
    if (content := place.read(folder, MARKER, MAX_MARKER_BYTES)) is None:
        if not place.is_free(folder):
            return None
        with contextlib.suppress(AlreadyClaimed):
            place.claim(folder, MARKER, _marker(order, complete=False))
        # Not every storage can reject a second claim: the last one persists, and every claimant reads it.
        content = place.read(folder, MARKER, MAX_MARKER_BYTES)
    document = _parsed(content or b"")
    return _paths(document) if document.get("job_id") == order.job_id else None


def _fill(place: PublishTarget, folder: str, order: PublishOrder, before: set[str], arrived: Arrived) -> None:
    place.write(folder, MARKER, _marker(order, complete=False))
    for file in order.in_order():
        with stream_opened(order.source, file) if order.is_streamed else _opened(order.source, file) as source:
            _put(place, folder, file, source, arrived)
    for path in sorted(before - {file.path for file in order.files}):
        place.remove(folder, path)
    place.write(folder, MARKER, _marker(order, complete=True))


def _put(place: PublishTarget, folder: str, file: PublishedFile, source: BinaryIO, arrived: Arrived) -> None:
    wanted = (file.size_bytes, file.sha256)
    if place.digest(folder, file.path, arrived) == wanted:
        return  # an earlier try got this far
    place.put(folder, file, source, arrived)
    if place.digest(folder, file.path, arrived) != wanted:
        raise NotPublished(f"{file.path} does not match what was sent, by size or SHA-256", transient=True)


@contextlib.contextmanager
def _opened(directory: Path, file: PublishedFile) -> Iterator[BinaryIO]:
    """A file of the model; a link in the directory stands for its target file, as when its digest was recorded."""
    try:
        with directory_opened(directory) as root, file_opened(root, source_of(directory, file.path)) as source:
            if os.fstat(source.fileno()).st_size != file.size_bytes:
                raise NotPublished(f"{file.path} has changed since it was stored; the storage may be damaged")
            yield source
    except RefusedFile as error:
        raise NotPublished(f"{error}; the storage may be damaged") from error


def _marker(order: PublishOrder, *, complete: bool) -> bytes:
    document = {
        "created_by": "trainyard",
        "job_id": order.job_id,
        "job_name": order.job_name,
        "complete": complete,
        "files": [vars(file) for file in order.files],
    }
    return json.dumps(document, indent=1).encode()


def _parsed(content: bytes) -> dict[str, Any]:
    try:
        document = json.loads(content)
    except ValueError:
        return {}
    return document if isinstance(document, dict) else {}


def _paths(document: dict[str, Any]) -> set[str]:
    """The paths in the marker; only plain names below the directory, because these may be deleted."""
    files = document.get("files")
    paths = {file.get("path") for file in files if isinstance(file, dict)} if isinstance(files, list) else set()
    return {path for path in paths if isinstance(path, str) and _is_plain(path)}


def _is_plain(path: str) -> bool:
    return path != MARKER and all(part not in ("", ".", "..") for part in path.split("/"))
