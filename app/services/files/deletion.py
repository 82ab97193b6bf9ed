"""Deletion of files that nothing needs any more."""

from sqlalchemy import select
from sqlalchemy.orm import Session

from app.domain.errors import NotFound, StillNeeded
from app.models import File
from app.models.base import utc_now
from app.security.permissions import Caller
from app.services.files import expiry, inspection_requests, listing, references
from app.services.lifecycle import audit
from app.services.requests.control_plane import ControlPlane


def delete(plane: ControlPlane, caller: Caller, file_id: str) -> None:
    """The file is not found from the commit on; its content is deleted after that, or later by a coordinator.

    Raises NotFound as `listing.find`, StillNeeded while a batch, a job, a sweep or a service that has not ended names
    it.
    """
    with plane.db.write() as session:
        listing.find(session, caller, file_id)
        file = session.scalar(
            select(File).where(File.id == file_id).with_for_update().execution_options(populate_existing=True)
        )
        if file is None or listing.is_hidden(file):
            raise NotFound(f"no file {file_id}")
        if user := references.user_of(session, file):
            end = "delete the service" if user.startswith("service ") else "wait for its end or cancel it"
            raise StillNeeded(f"{user} has not ended and names {file_id}; {end}, then delete the file")
        hide(session, file, caller)
    expiry.drop_file(plane.db, plane.storage, file_id)


def hide(session: Session, file: File, caller: Caller) -> None:
    """Let a file that the transaction has locked be found no more; `expiry.drop_file` then deletes it."""
    file.expires_at = utc_now()
    inspection_requests.drop(session, file.id)
    audit.record(
        session,
        actor=caller.actor,
        action="file.delete",
        project=file.project,
        target=file.id,
        data={"filename": file.filename, "purpose": file.purpose},
    )
