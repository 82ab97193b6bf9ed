"""Resolves uploaded files that are data sources: found in the storage, and compared with what was uploaded.

In a local storage they are used in place; from a remote one they are fetched into this node's cache. Either way a job
reads them by a link that is named as the uploaded file, with the suffix of its content.
"""

import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

from app.database.engine import Database
from app.domain.errors import InvalidRequest, NotFound, TransientStorageError
from app.domain.files.content import GZIP, ZSTD
from app.domain.files.purposes import FINE_TUNE
from app.domain.spec.data.formats import COMPRESSIONS, format_of
from app.models import File
from app.storage.failures import StorageRefused
from app.storage.object_keys import user_file_key
from app.storage.storage import Storage
from workers.attempt_failed import AttemptFailed
from workers.fetching.digests import Digests
from workers.fetching.failures import FetchFailed
from workers.fetching.fetch import TooLargeHere
from workers.prepare.inputs.input_library import FETCHED, Library, LocalData, LocalDataFile, UploadedFile

_MAGIC = {GZIP: ".gz", ZSTD: ".zst"}
_CONTROLS = re.compile(r"[\x00-\x1f\x7f]")
_NAME_BYTES = 200  # leaves room for suffixes
_FETCHED_AS = ".content"  # until the suffix is known


def uploads_of(db: Database, storage_url: str, project: str) -> Callable[[str], UploadedFile | None]:
    """Finds the project's files by id; None for what is not there, or another project's."""

    def found(file_id: str) -> UploadedFile | None:
        with db.read() as session:
            file = session.get(File, file_id)
            if file is None or file.project != project:
                return None
            return UploadedFile(
                id=file.id,
                filename=file.filename,
                purpose=file.purpose,
                size_bytes=file.size_bytes,
                sha256=file.sha256,
                storage=Storage(storage_url),
                key=user_file_key(project, file.id),
            )

    return found


def find_uploaded(library: Library, file_id: str) -> LocalData:
    """The file of the library's project. Raises AttemptFailed."""
    what = f"data source {file_id}"
    file = library.uploads(file_id)
    if file is None:
        raise AttemptFailed("DATA_NOT_FOUND", f"{what}: the project {library.project} has no such file; upload it")
    directory = library.new_directory()
    directory.mkdir(parents=True)
    content = content_of(library, file, directory / _FETCHED_AS, what, "DATA_NOT_FOUND")
    try:
        link = directory / _name(file, content)
        if content.parent == directory:
            content.rename(link)
            visible = [directory]
        else:
            link.symlink_to(content)
            visible = [directory, content]
    except OSError as error:
        raise AttemptFailed("STORAGE_ERROR", f"{what}: {error}") from error
    found = LocalDataFile(path=link, name=link.name, size_bytes=file.size_bytes, sha256=file.sha256)
    return LocalData(location=file_id, files=(found,), path=link, visible=tuple(visible))


def content_of(library: Library, file: UploadedFile, target: Path, what: str, not_there: str) -> Path:
    """The content: where it is in a local storage, or fetched as ``target``. Raises AttemptFailed.

    ``what`` begins its messages; ``not_there`` is the error type of content that is gone.
    """
    try:
        here = file.storage.local_path(file.key)
        if here is None:
            return _fetched(library, file, target, what)
        _compare(library, file, here, what)
        return here.resolve()
    except NotFound as error:
        raise AttemptFailed(not_there, f"{what}: {error.message}; upload it again") from error
    except FetchFailed as error:
        raise AttemptFailed(error.error_type or not_there, f"{what}: {error.message}") from error
    except (TransientStorageError, StorageRefused, InvalidRequest, OSError) as error:
        raise AttemptFailed("STORAGE_ERROR", f"{what}: {error}") from error


def _compare(library: Library, file: UploadedFile, path: Path, what: str) -> None:
    """Raises AttemptFailed, NotFound, OSError. A preflight reads no file twice that is larger than what it fetches."""
    if not path.is_file():
        raise NotFound("the storage has no content of it")
    if path.stat().st_size != file.size_bytes:
        raise _differs(what)
    limit = library.fetch_bytes
    if limit is not None and file.size_bytes > limit:
        return
    if Digests(library.cache_dir / FETCHED / "local").of(path) != file.sha256:
        raise _differs(what)


def _fetched(library: Library, file: UploadedFile, target: Path, what: str) -> Path:
    """The content from a remote storage, linked from the cache. Raises AttemptFailed, FetchFailed, StorageRefused, …"""
    cache, limit = library.file_cache, library.fetch_bytes
    if limit is not None and file.size_bytes > limit:
        raise TooLargeHere(
            "DATA_INVALID",
            f"{what}: its {file.size_bytes} bytes are more than {limit} (TRAINYARD_PREFLIGHT_FETCH_BYTES)",
        )
    with cache.alone(f"upload {file.sha256}"):
        if cache.link(file.sha256, target) is not None:
            return target
        with cache.scratch(file.size_bytes) as scratch, file.storage.open(file.key) as content:
            part = scratch / "data"
            _copy(content, part)
            if part.stat().st_size != file.size_bytes:
                raise _differs(what)
            digest = cache.adopt(part, target)
    if digest != file.sha256:
        raise _differs(what)
    return target


def _copy(content: BinaryIO, target: Path) -> None:
    with target.open("xb") as copy:
        shutil.copyfileobj(content, copy, 1 << 20)


def _differs(what: str) -> AttemptFailed:
    return AttemptFailed(
        "DATA_INVALID", f"{what}: its content in the storage is not what was uploaded; upload it again"
    )


def _name(file: UploadedFile, content: Path) -> str:
    """The uploaded file's name, whose suffix says what the content is."""
    name = _CONTROLS.sub("_", file.filename.replace("\\", "/").rpartition("/")[2])
    for compression in COMPRESSIONS:
        name = name.removesuffix(compression)
    known = f".{name.rpartition('.')[2]}" if format_of(name) else ""
    suffix = f"{known}.jsonl" if file.purpose == FINE_TUNE and format_of(name) != "jsonl" else known
    stem = name.removesuffix(known).encode("utf-8", "ignore")[:_NAME_BYTES].decode("utf-8", "ignore")
    with content.open("rb") as stream:
        head = stream.read(4)
    compression = next((each for magic, each in _MAGIC.items() if head.startswith(magic)), "")
    return f"{file.id if stem in ('', '.', '..') else stem}{suffix}{compression}"
