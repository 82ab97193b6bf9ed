"""Deletion of what has expired: files and their content, uploads and their parts.

A deleted file is one that expires at once. Content goes first, then the row, which is hidden meanwhile, so that an
interrupted deletion is finished later.
"""

import logging
from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import and_, delete, or_, select
from sqlalchemy.orm import Session

from app.database.engine import Database
from app.domain.errors import TrainyardError
from app.models import File, Upload, UploadPart
from app.models.base import utc_now
from app.services.files import inspection_requests, references
from app.storage.object_keys import upload_parts_key, user_file_key
from app.storage.storage import Storage

log = logging.getLogger(__name__)

ROWS_AT_ONCE = 100  # storage may be slow, and a stopping coordinator waits for the round
# Longer than a request that adds a part may take: what it leaves is deleted with the row of its upload.
UPLOADS_KEPT = timedelta(hours=24)


@dataclass
class Cursor:
    """Where the next round resumes, so that files which are still named do not block the others."""

    after: tuple[datetime, str] | None = None
    rows: int = ROWS_AT_ONCE


def drop_file(db: Database, storage: Storage, file_id: str) -> bool:
    """Delete an expired file, unless something still needs it. A failure is logged and left to a later round."""
    with db.read() as session:  # the search may take long, and SQLite has one writer
        file = session.get(File, file_id)
        if file is None or references.user_of(session, file) is not None:
            return False
    with db.write() as session:
        file = session.get(File, file_id, with_for_update=True, populate_existing=True)
        # A submission that locked the file before it expired is stored by now.
        if file is None or not _is_expired(file) or references.user_of(session, file) is not None:
            return False
        file.expires_at = file.created_at  # expired by the clock of every host: from here on no job gets it
        key = user_file_key(file.project, file.id)
    try:
        storage.delete_tree(key)
    except TrainyardError:
        log.warning("the content of %s could not be deleted yet", file_id, exc_info=True)
        return False
    with db.write() as session:
        session.execute(delete(File).where(File.id == file_id))
        inspection_requests.drop(session, file_id)
    return True


def drop_parts(storage: Storage, project: str, upload_id: str) -> bool:
    """Delete the content of an upload that has ended. A failure is logged and left to a later round."""
    try:
        storage.delete_tree(upload_parts_key(project, upload_id))
    except TrainyardError:
        log.warning("the parts of %s could not be deleted yet", upload_id, exc_info=True)
        return False
    return True


def drop_expired(db: Database, storage: Storage, cursor: Cursor | None = None) -> int:
    """Delete some of the files and uploads that have expired; returns how many. The cursor is moved on."""
    cursor = cursor or Cursor()
    query = select(File.expires_at, File.id).where(File.expires_at <= utc_now())
    if cursor.after is not None:
        at, file_id = cursor.after
        query = query.where(or_(File.expires_at > at, and_(File.expires_at == at, File.id > file_id)))
    with db.query() as connection:
        rows = connection.execute(query.order_by(File.expires_at, File.id).limit(cursor.rows)).all()
    dropped = sum(drop_file(db, storage, row.id) for row in rows)
    cursor.after = (rows[-1].expires_at, rows[-1].id) if len(rows) == cursor.rows else None
    return dropped + _expire_uploads(db, storage) + _forget_uploads(db, storage)


def end(session: Session, upload: Upload, status: str) -> None:
    """End an upload that the caller has locked; its parts are gone, and their content is deleted after the commit."""
    upload.status = status
    session.execute(delete(UploadPart).where(UploadPart.upload_id == upload.id))


def _is_expired(file: File) -> bool:
    return file.expires_at is not None and file.expires_at <= utc_now()


def _expire_uploads(db: Database, storage: Storage) -> int:
    """End uploads that were not completed in time."""
    late = Upload.status == "pending", Upload.expires_at <= utc_now()
    with db.write() as session:
        query = select(Upload).where(*late).order_by(Upload.id).limit(ROWS_AT_ONCE).with_for_update(skip_locked=True)
        uploads = session.scalars(query).all()
        for upload in uploads:
            end(session, upload, "expired")
    for upload in uploads:
        drop_parts(storage, upload.project, upload.id)
    return len(uploads)


def _forget_uploads(db: Database, storage: Storage) -> int:
    """Delete the rows of uploads that ended long ago."""
    long_ago = utc_now() - UPLOADS_KEPT
    ended = select(Upload.id, Upload.project).where(Upload.status != "pending", Upload.expires_at < long_ago)
    with db.query() as connection:
        rows = connection.execute(ended.order_by(Upload.id).limit(ROWS_AT_ONCE)).all()
    gone = [row.id for row in rows if drop_parts(storage, row.project, row.id)]
    if gone:
        with db.write() as session:
            session.execute(delete(Upload).where(Upload.id.in_(gone)))
    return len(gone)
