"""Which uploaded files the stored rows name: documents of jobs, sweeps and services, batches, and registered models."""

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import ColumnElement, String, cast, or_, select
from sqlalchemy.orm import Session

from app.domain.batches import states as batch_states
from app.domain.ids import FILE_ID, first_id
from app.domain.lifecycle import states
from app.domain.sweeps import states as sweep_states
from app.models import Batch, File, Job, RegisteredModel, Service, Sweep

# Rows with documents: the prefix of their ids, the documents, and which of the rows have not ended.
_WITH_DOCUMENTS: tuple[tuple[str, type[Any], tuple[Any, ...], ColumnElement[bool]], ...] = (
    ("job", Job, (Job.spec,), Job.status.not_in(states.TERMINAL)),
    ("sweep", Sweep, (Sweep.base, Sweep.spec), Sweep.status.not_in(sweep_states.TERMINAL)),
    ("service", Service, (Service.base, Service.spec), Service.ended_at.is_(None)),
)
_WITH_IDS: tuple[Any, ...] = (Batch.input_file_id, Batch.output_file_id, Batch.error_file_id, RegisteredModel.location)
_IN_PARTS = {"yield_per": 500}
_CLOCKS = timedelta(hours=1)  # more than clocks of two API servers differ, which make the ids


def user_of(session: Session, file: File) -> str | None:
    """A batch, a job, a sweep or a service that has not ended and names the file."""
    live = Batch.input_file_id == file.id, Batch.status.not_in(batch_states.ENDED)
    if batch := session.scalar(select(Batch.id).where(*live).limit(1)):
        return f"batch {batch}"
    for what, model, documents, is_live in _WITH_DOCUMENTS:
        if found := _naming(session, model, documents, file, is_live):
            return f"{what} {found}"
    return None


def named_files(session: Session) -> set[str]:
    """The ids of all files that any row names, however long ago its job, sweep, service or batch has ended."""
    return {found[0] for text in _texts(session) for found in FILE_ID.finditer(text)}


def is_named_since(session: Session, file: File, moment: datetime) -> bool:
    """Whether a job, a sweep or a service that was made after the moment names the file, or any batch or model does."""
    for prefix, model, documents, _ in _WITH_DOCUMENTS:
        is_new = model.id >= first_id(prefix, moment - _CLOCKS)
        if _naming(session, model, documents, file, is_new):
            return True
    whole = (Batch.input_file_id, RegisteredModel.location)
    return any(session.scalar(select(each).where(each == file.id).limit(1)) is not None for each in whole)


def _naming(
    session: Session, model: type[Any], documents: tuple[Any, ...], file: File, condition: ColumnElement[bool]
) -> str | None:
    quoted = f'"{file.id}"'  # a whole value of the document
    names_it = or_(*(_has(each, quoted) for each in documents))
    found: str | None = session.scalar(
        select(model.id).where(model.project == file.project, condition, names_it).limit(1)
    )
    return found


def _texts(session: Session) -> Iterator[str]:
    for _, _, documents, _ in _WITH_DOCUMENTS:
        for each in documents:
            query = select(cast(each, String)).where(_has(each, '"file-'))
            yield from session.scalars(query, execution_options=_IN_PARTS)
    for column in _WITH_IDS:
        yield from session.scalars(select(column).where(column.startswith("file-")), execution_options=_IN_PARTS)


def _has(document: Any, text: str) -> ColumnElement[bool]:  # noqa: ANN401 – a column of JSON
    return cast(document, String).contains(text, autoescape=True)
