"""Retention of uploaded files by age: of those that no row names any more, and that have no expiry of their own."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import select

from app.models import File
from app.models.base import utc_now
from app.services.files import deletion, expiry, references
from app.services.operations.retention.context import RETENTION, Pruned, RetentionContext

FILES_AT_ONCE = 200


def files(context: RetentionContext) -> Pruned:
    """Delete files that were created long ago and that nothing stored names.

    A job, a sweep, a service or a batch names its files until it is deleted itself, so that what it has read can be
    looked up as long as it is there. A job's own files, its results, go with the job.
    """
    began = utc_now()
    with context.plane.db.read() as session:
        named = references.named_files(session)
    pruned, last = Pruned(), ""
    while rows := _older(context, last):
        for row in rows:
            pruned += Pruned(kept=1) if row.id in named else _delete(context, row.id, row.size_bytes, began)
        last = rows[-1].id
    return pruned


def _older(context: RetentionContext, last: str) -> Sequence[Any]:
    """The next files, by id and size."""
    is_old = File.created_at < context.before(context.settings.files_days), File.expires_at.is_(None)
    query = select(File.id, File.size_bytes).where(*is_old, File.job_id.is_(None), File.id > last)
    with context.plane.db.read() as session:
        return session.execute(query.order_by(File.id).limit(FILES_AT_ONCE)).all()


def _delete(context: RetentionContext, file_id: str, size_bytes: int, began: datetime) -> Pruned:
    """Delete it unless something has named it since ``began``. The content goes after the commit."""
    if context.dry_run:
        return Pruned(count=1, bytes=size_bytes)
    with context.plane.db.write() as session:
        # What names a file locks it first: it is either seen here, or finds no file.
        file = session.get(File, file_id, with_for_update=True, populate_existing=True)
        if file is None or file.expires_at is not None:
            return Pruned()  # deleted concurrently
        if references.user_of(session, file) is not None or references.is_named_since(session, file, began):
            return Pruned(kept=1)
        deletion.hide(session, file, RETENTION)
    expiry.drop_file(context.plane.db, context.plane.storage, file_id)
    return Pruned(count=1, bytes=size_bytes)
