"""Requests to inspect uploaded files; coordinators claim them (``app.services.preflight.file_inspections``)."""

from sqlalchemy import delete
from sqlalchemy.orm import Session

from app.domain.files.purposes import INSPECTED
from app.domain.ids import new_id
from app.models import File, Inspection


def request(session: Session, file: File) -> None:
    """Request the inspection of a new file, if its purpose demands one."""
    if file.purpose in INSPECTED:
        session.add(Inspection(id=new_id("insp"), project=file.project, file_id=file.id))


def drop(session: Session, file_id: str) -> None:
    """Delete the inspection of a file that is deleted; one that runs ends when its holder sees that."""
    session.execute(
        delete(Inspection).where(Inspection.file_id == file_id).execution_options(synchronize_session=False)
    )
