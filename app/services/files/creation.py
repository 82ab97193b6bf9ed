"""Creation of files: a hidden row, the content, then the row that shows it, and the request to inspect it."""

import unicodedata
from dataclasses import dataclass
from datetime import timedelta

from sqlalchemy.orm import Session

from app.domain.errors import InvalidRequest
from app.domain.files import purposes
from app.domain.ids import new_id
from app.models import File
from app.models.base import utc_now
from app.security.permissions import Caller
from app.services.access import projects
from app.services.files import hidden_rows, inspection_requests, storage_quota
from app.services.files.incoming import Incoming, StoredContent, UploadTarget
from app.services.lifecycle import audit
from app.services.requests.control_plane import ControlPlane
from app.services.requests.idempotency import OnWritten, not_stored
from app.storage.object_keys import user_file_key

MOST_FILENAME_CHARACTERS = 255


@dataclass(frozen=True, kw_only=True)
class NewFile:
    filename: str
    purpose: str
    expires_seconds: int | None = None  # after its creation; None: it stays until it is deleted


def check(new: NewFile) -> None:
    """Raises InvalidRequest for a name, a purpose or an expiry that no file may have."""
    if new.purpose not in purposes.UPLOADED:
        raise InvalidRequest(
            f"the purpose {new.purpose[:64]!r} is not one of {', '.join(purposes.UPLOADED)}", field="purpose"
        )
    name = new.filename
    if not 1 <= len(name) <= MOST_FILENAME_CHARACTERS or any(unicodedata.category(c) in ("Cc", "Cs") for c in name):
        raise InvalidRequest(
            f"a file needs a name of 1 to {MOST_FILENAME_CHARACTERS} printable characters", field="filename"
        )
    least, most = purposes.SHORTEST_EXPIRY_SECONDS, purposes.LONGEST_EXPIRY_SECONDS
    if new.expires_seconds is not None and not least <= new.expires_seconds <= most:
        raise InvalidRequest(f"a file may expire {least} to {most} seconds after its creation", field="expires_after")


def receive(plane: ControlPlane, caller: Caller, project: str, *, max_bytes: int) -> Incoming:
    """Receive the content of a new file. Raises NotFound for a project that is not there or not the caller's."""
    caller.require_project(project[:63])
    with plane.db.read() as session:
        free = storage_quota.free_bytes(session, projects.require(session, project))
    file_id = new_id("file")
    return Incoming(plane, place_of(file_id, project, max_bytes=max_bytes, free_bytes=free))


def place_of(file_id: str, project: str, *, max_bytes: int, free_bytes: int | None) -> UploadTarget:
    return UploadTarget(
        id=file_id,
        key=user_file_key(project, file_id),
        project=project,
        max_bytes=max_bytes,
        free_bytes=free_bytes,
        has_row=hidden_rows.is_shown,
        announce=lambda session, row_id: hidden_rows.add(session, project, row_id),
        forget=hidden_rows.delete,
    )


def create(
    plane: ControlPlane,
    caller: Caller,
    new: NewFile,
    content: StoredContent,
    *,
    project: str,
    on_written: OnWritten = not_stored,
) -> None:
    """Write the row of received content, within the block of its `Incoming`. ``on_written`` is given the File.

    Raises InvalidRequest as `check`, StorageQuotaExceeded when another file was faster, NotFound without the project,
    Conflict when the hidden row has expired.
    """
    check(new)
    caller.require_project(project)
    with plane.db.write() as session:
        on_written(session, added(session, caller, new, content, project=project))


def added(session: Session, caller: Caller, new: NewFile, content: StoredContent, *, project: str) -> File:
    """The row, complete and shown, in the caller's transaction."""
    projects.require(session, project)
    storage_quota.hold(session, project)
    storage_quota.refuse_more(session, project, content.size_bytes)
    file = hidden_rows.taken(session, content.file_id)
    file.created_by = caller.actor
    file.filename, file.purpose = new.filename, new.purpose
    file.size_bytes, file.sha256, file.records = content.size_bytes, content.sha256, content.records
    file.status = purposes.first_status(new.purpose)
    file.expires_at = utc_now() + timedelta(seconds=new.expires_seconds) if new.expires_seconds else None
    inspection_requests.request(session, file)
    audit.record(
        session,
        actor=caller.actor,
        action="file.create",
        project=project,
        target=file.id,
        data={"filename": file.filename, "purpose": file.purpose, "size_bytes": file.size_bytes},
    )
    session.flush()
    return file
