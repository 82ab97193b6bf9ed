"""Finding and listing files: those that are complete, and have not expired even if their content is still there."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, or_, select
from sqlalchemy.orm import Session

from app.domain.errors import InvalidRequest, NotFound
from app.domain.files.purposes import RECEIVING
from app.domain.ids import FILE_ID
from app.models import File
from app.models.base import utc_now
from app.security.permissions import Caller
from app.services.requests.pagination import PageRequest

NEWEST_FIRST = "-created_at"
ORDERS = ("created_at", NEWEST_FIRST)  # that of the ids, which begin with the moment of their creation
FILTERS: dict[str, Callable[[Any], ColumnElement[bool]]] = {
    "purpose": lambda purpose: File.purpose == purpose,
    "sha256": lambda sha256: File.sha256 == sha256,
}


@dataclass(frozen=True, kw_only=True)
class FilePage:
    items: Sequence[File]
    next_after: tuple[str] | None  # None: this is the last page


def find(session: Session, caller: Caller, file_id: str) -> File:
    """The file; raises the same NotFound for one that is not there, has expired, or is not visible to the caller."""
    missing = f"no file {file_id[:64]}"
    file = session.get(File, file_id) if FILE_ID.fullmatch(file_id) else None
    if file is None or is_hidden(file):
        raise NotFound(missing)
    caller.require_sight(file.project, missing)
    return file


def is_hidden(file: File, now: datetime | None = None) -> bool:
    """Whether it has expired, or its content is not complete yet."""
    if file.status == RECEIVING:
        return True
    return file.expires_at is not None and file.expires_at <= (now or utc_now())


def page(session: Session, caller: Caller, filters: Mapping[str, Any], request: PageRequest) -> FilePage:
    """The caller's files that pass every filter, in one of ORDERS. Raises InvalidRequest for a page after no file.

    ``after`` is the id of a file, which may have been deleted. The files are not counted: there may be many. A search
    by content is for one that need not be uploaded, so it stays in the project that an upload would go to.
    """
    query = select(File).where(File.status != RECEIVING, or_(File.expires_at.is_(None), File.expires_at > utc_now()))
    if caller.project is not None or "sha256" in filters:
        query = query.where(File.project == caller.home_project)
    query = query.where(*(FILTERS[name](value) for name, value in filters.items()))
    is_descending = request.order == NEWEST_FIRST
    if request.after is not None:
        last = str(request.after[0])
        if not FILE_ID.fullmatch(last):
            raise InvalidRequest(f"{last[:64]!r} is not the id of a file; a list begins after one", field="after")
        query = query.where(File.id < last if is_descending else File.id > last)
    query = query.order_by(File.id.desc() if is_descending else File.id.asc())
    found = session.scalars(query.limit(request.size + 1)).all()
    shown = found[: request.size]
    return FilePage(items=shown, next_after=(shown[-1].id,) if len(found) > len(shown) else None)


def held(
    session: Session, project: str, ids: Collection[str], *, kept: Collection[str] = frozenset()
) -> Sequence[File]:
    """Those of these files that the project has, locked against deletion until the transaction ends.

    For a transaction that adds what names them: a deletion searches for that after it has locked a file.
    ``kept``: those that may have expired, since something that the caller knows of still keeps their content.
    """
    query = select(File).where(File.id.in_(ids), File.project == project).order_by(File.id)
    found = session.scalars(query.with_for_update(read=True).execution_options(populate_existing=True)).all()
    return [file for file in found if not is_hidden(file) or (file.id in kept and file.status != RECEIVING)]
