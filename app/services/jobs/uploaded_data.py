"""Uploaded files that a job names as data, model or code: whether it may use them, and a lock until it is stored."""

from collections.abc import Collection

from sqlalchemy import select
from sqlalchemy.orm import Session

from app.domain.batches.states import ENDED
from app.domain.errors import BadSpec
from app.domain.files.inspection import first_of
from app.domain.files.purposes import BATCH, ERROR
from app.domain.spec.document import is_directory, uploads
from app.domain.spec.inference import REQUESTS
from app.domain.spec.locations.uploads import check_directory, check_purpose
from app.domain.spec.model import JobDocument
from app.models import Batch
from app.services.files import listing


def files_of(document: JobDocument) -> frozenset[str]:
    """The ids of the uploaded files that it names."""
    return frozenset(each for each, _ in uploads(document))


def refuse_unusable_files(
    session: Session, project: str, document: JobDocument, *, kept: Collection[str] = frozenset()
) -> None:
    """Refuse files that the project does not have, or that are no usable data.

    Locks their rows against deletion until the transaction ends. ``kept``: those that may have expired, since a live
    sweep or service of the project names them, which keeps their content. Raises BadSpec.
    """
    named = uploads(document)
    reads_requests = document.inference is not None and document.inference.task.type == REQUESTS
    ids = [each for each, _ in named]
    if reads_requests:
        kept = {*kept, *_kept_by_batches(session, project, ids)}
    held = {file.id: file for file in listing.held(session, project, ids, kept=kept)} if named else {}
    for file_id, field in named:
        file = held.get(file_id)
        if file is None:
            raise BadSpec(
                f"the project {project} has no file {file_id}; list its files with GET /v1/files", field=field
            )
        if is_directory(field):
            check_directory(file_id, file.purpose, field=field)
        elif not (reads_requests and file.purpose == BATCH):
            check_purpose(file_id, file.purpose, field=field)
        if file.status == ERROR:
            problem = first_of(file.status_details)
            raise BadSpec(f"{file_id} ({file.filename}) can't be used: {problem}; upload a corrected file", field=field)


def _kept_by_batches(session: Session, project: str, ids: Collection[str]) -> frozenset[str]:
    """Those whose content is there even if they have expired: a batch that has not ended names them."""
    query = select(Batch.input_file_id).where(
        Batch.project == project, Batch.input_file_id.in_(ids), Batch.status.not_in(ENDED)
    )
    return frozenset(session.scalars(query))
