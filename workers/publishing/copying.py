"""Copies a model into a directory of whatever kind: never over somebody else's files, checked, safe to do again.

The first file is a marker that says whose the directory is; it says that everything is there when everything is.
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
from workers.publishing.orders import File, PublishOrder

MARKER = ".trainyard.json"
MAX_MARKER_BYTES = 16 << 20
Arrived = Callable[[int], None]  # so many bytes were moved: a sign of life


class PublishTarget(Protocol):
    """A directory that may not exist yet. ``folder`` is one in it, or empty; paths are relative to that.

    Raises NotPublished, OSError.
    """

    def read(self, folder: str, path: str, most: int) -> bytes | None:
        """A small file; None when there is none."""
        ...

    def is_free(self, folder: str) -> bool:
        """Whether it is missing or empty."""
        ...

    def claim(self, folder: str, path: str, data: bytes) -> None:
        """Write the first file. Raises Taken if there is one already, where the storage can tell."""
        ...

    def write(self, folder: str, path: str, data: bytes) -> None:
        """Write a small file whole or not at all, replacing another."""
        ...

    def put(self, folder: str, file: File, source: BinaryIO, arrived: Arrived) -> None:
        """The same with a file of any size, which is open."""
        ...

    def digest(self, folder: str, path: str, arrived: Arrived) -> tuple[int, str] | None:
        """Size and SHA-256 of what lies there; None when there is nothing."""
        ...

    def remove(self, folder: str, path: str) -> None:
        """Nothing there is fine."""
        ...


def digest_of(blocks: Iterable[bytes], arrived: Arrived) -> tuple[int, str]:
    """Size and SHA-256 of what comes block by block."""
    digest, size = hashlib.sha256(), 0
    for block in blocks:
        digest.update(block)
        size += len(block)
        arrived(len(block))
    return size, digest.hexdigest()


def copy(place: PublishTarget, order: PublishOrder, arrived: Arrived) -> str:
    """The folder that the model went to: empty for the directory itself, else the job's id. Raises NotPublished."""
    if any(file.path == MARKER for file in order.files):
        raise NotPublished(f"the model holds a file {MARKER}, a name that is used to mark exported models; rename it")
    for folder in ("", order.job_id):
        before = _take(place, folder, order)
        if before is not None:
            _fill(place, folder, order, before, arrived)
            return folder
    raise NotPublished(
        f"the directory holds files of others, and so does {order.job_id} in it; name an empty directory"
    )


def _take(place: PublishTarget, folder: str, order: PublishOrder) -> set[str] | None:
    """The files that an earlier try may have left, if the directory is ours now; None when it is somebody else's."""
    if (said := place.read(folder, MARKER, MAX_MARKER_BYTES)) is None:
        if not place.is_free(folder):
            return None
        with contextlib.suppress(AlreadyClaimed):
            place.claim(folder, MARKER, _marker(order, complete=False))
        # Not every storage can refuse a second claim: the last one stands, and all of them read it.
        said = place.read(folder, MARKER, MAX_MARKER_BYTES)
    document = _parsed(said or b"")
    return _paths(document) if document.get("job_id") == order.job_id else None


def _fill(place: PublishTarget, folder: str, order: PublishOrder, before: set[str], arrived: Arrived) -> None:
    place.write(folder, MARKER, _marker(order, complete=False))
    for file in order.in_order():
        with _opened(order.source, file) as source:
            _put(place, folder, file, source, arrived)
    for path in sorted(before - {file.path for file in order.files}):
        place.remove(folder, path)
    place.write(folder, MARKER, _marker(order, complete=True))


def _put(place: PublishTarget, folder: str, file: File, source: BinaryIO, arrived: Arrived) -> None:
    wanted = (file.size_bytes, file.sha256)
    if place.digest(folder, file.path, arrived) == wanted:
        return  # an earlier try got that far
    place.put(folder, file, source, arrived)
    if place.digest(folder, file.path, arrived) != wanted:
        raise NotPublished(f"{file.path} is not there as it was sent, by size or SHA-256", transient=True)


@contextlib.contextmanager
def _opened(directory: Path, file: File) -> Iterator[BinaryIO]:
    """A file of the model; a link in the directory stands for a file in it, as it did when that was described."""
    try:
        with directory_opened(directory) as root, file_opened(root, source_of(directory, file.path)) as source:
            if os.fstat(source.fileno()).st_size != file.size_bytes:
                raise NotPublished(f"{file.path} is not as it was stored; the storage may be damaged")
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


def _parsed(said: bytes) -> dict[str, Any]:
    try:
        document = json.loads(said)
    except ValueError:
        return {}
    return document if isinstance(document, dict) else {}


def _paths(document: dict[str, Any]) -> set[str]:
    """What the marker names; only plain names below the directory, for these may be deleted."""
    files = document.get("files")
    paths = {file.get("path") for file in files if isinstance(file, dict)} if isinstance(files, list) else set()
    return {path for path in paths if isinstance(path, str) and _is_plain(path)}


def _is_plain(path: str) -> bool:
    return path != MARKER and all(part not in ("", ".", "..") for part in path.split("/"))
