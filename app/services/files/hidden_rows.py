"""Rows of files whose content is not complete: hidden from clients, they lead to content that a dead process left.

A row is hidden by its status, and expires; then its content is deleted, like that of every file.
"""

from datetime import timedelta

from sqlalchemy import delete as sql_delete
from sqlalchemy.orm import Session

from app.domain.errors import Conflict
from app.domain.files.purposes import RECEIVING
from app.domain.ids import moment_of
from app.models import File
from app.models.base import utc_now
from app.services.access import projects

# Longer than it may take to make received content durable, and then to show it.
KEPT = timedelta(hours=24)


def add(session: Session, project: str, file_id: str) -> None:
    """Its content is about to be complete. Raises NotFound without the project."""
    projects.hold(session, project)
    projects.require(session, project)
    session.add(
        File(
            id=file_id,
            project=project,
            created_by="",
            filename="",
            purpose="",
            size_bytes=0,
            sha256="",
            status=RECEIVING,
            created_at=moment_of(file_id),  # lists are in the order of ids
            expires_at=utc_now() + KEPT,
        )
    )


def taken(session: Session, file_id: str) -> File:
    """The hidden row, locked; the caller completes and shows it. Raises Conflict when it has expired."""
    file = session.get(File, file_id, with_for_update=True, populate_existing=True)
    if file is None or file.status != RECEIVING or file.expires_at is None or file.expires_at <= utc_now():
        raise Conflict(f"the content of {file_id} took longer than {KEPT} to be recorded; send it again")
    return file


def is_shown(session: Session, file_id: str) -> bool:
    file = session.get(File, file_id)
    return file is not None and file.status != RECEIVING


def delete(session: Session, file_id: str) -> None:
    session.execute(sql_delete(File).where(File.id == file_id, File.status == RECEIVING))
