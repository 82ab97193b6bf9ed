"""Content that arrives in pieces and goes straight to the storage; it exists when it is complete, or not at all."""

import hashlib
import logging
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Protocol, Self

from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.orm import Session

from app.database.engine import Database
from app.domain.errors import Conflict, NotFound, TooLarge, TrainyardError
from app.services.files import storage_quota
from app.services.files.records import RecordCounter
from app.storage.pending import PendingWriter
from app.storage.storage import Storage

log = logging.getLogger(__name__)


class Stores(Protocol):
    """Where rows and content go, such as a control plane's."""

    @property
    def db(self) -> Database: ...
    @property
    def storage(self) -> Storage: ...


@dataclass(frozen=True, kw_only=True)
class StoredContent:
    """Content that is complete in the storage, and has no row yet that shows it."""

    file_id: str
    size_bytes: int
    sha256: str
    records: int | None  # None: it is compressed


@dataclass(frozen=True, kw_only=True)
class UploadTarget:
    """Where content goes, and how much of it is taken."""

    id: str
    key: str
    project: str
    max_bytes: int
    free_bytes: int | None  # by the quota of the project; None: no limit
    has_row: Callable[[Session, str], bool]  # whether the row that shows the content is there
    # Write a hidden row just before the content is complete, and delete it: where nothing else leads to content that a
    # dead process has left. A hidden row expires, and its content with it.
    announce: Callable[[Session, str], None] | None = None
    forget: Callable[[Session, str], None] | None = None


class Incoming:
    """Content that is being received, as a context manager.

    ``write`` as it arrives, then ``finish``, then write the row that shows it. Content that no row shows at the end of
    the block is deleted. Where the database can't tell, it is kept: the row may be there.
    """

    def __init__(self, stores: Stores, place: UploadTarget) -> None:
        self._stores, self._place = stores, place
        self._hash, self._records = hashlib.sha256(), RecordCounter()
        self._size = 0
        self._writer: PendingWriter | None = None
        self._is_stored, self._is_announced = False, False

    def __enter__(self) -> Self:
        self._writer = self._stores.storage.begin(self._place.key)
        return self

    def write(self, chunk: bytes | memoryview) -> None:
        """Raises TooLarge beyond the limit, StorageQuotaExceeded beyond the project's quota.

        What the chunk lies in may be overwritten afterwards.
        """
        place = self._place
        self._size += len(chunk)
        if self._size > place.max_bytes:
            raise TooLarge(f"the content is larger than {place.max_bytes} bytes, the most that is taken here")
        if place.free_bytes is not None and self._size > place.free_bytes:
            raise storage_quota.exceeded(place.project, self._size, place.free_bytes)
        self._hash.update(chunk)
        self._records.add(chunk)
        self._open_writer().write(chunk)

    def finish(self) -> StoredContent:
        """All has arrived: make it durable under its key.

        Raises Conflict when its folder was deleted meanwhile, NotFound when its project was.
        """
        if self._place.announce is not None:
            with self._stores.db.write() as session:
                self._place.announce(session, self._place.id)
            self._is_announced = True
        try:
            self._open_writer().commit()
        except NotFound as error:
            raise Conflict("the upload that this belongs to was deleted while it arrived; begin another") from error
        self._is_stored = True
        return StoredContent(
            file_id=self._place.id, size_bytes=self._size, sha256=self._hash.hexdigest(), records=self._records.count()
        )

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if not self._is_stored:
                self._open_writer().discard()
            elif self._has_row():
                return
            else:
                self._stores.storage.delete_tree(self._place.key)
            if self._is_announced and self._place.forget is not None:
                with self._stores.db.write() as session:
                    self._place.forget(session, self._place.id)
        except (TrainyardError, SQLAlchemyError):
            log.warning("%s may be left without a row", self._place.key, exc_info=True)

    def _has_row(self) -> bool:
        with self._stores.db.read() as session:
            return self._place.has_row(session, self._place.id)

    def _open_writer(self) -> PendingWriter:
        if self._writer is None:
            raise RuntimeError("enter the context before its use")
        return self._writer
