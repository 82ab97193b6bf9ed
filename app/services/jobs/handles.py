"""Handles of jobs and sweeps: an id, a name, or the end of an id, as people type them."""

import re
from collections.abc import Sequence

from sqlalchemy import ColumnElement, select
from sqlalchemy.orm import Session

from app.models import Job, Sweep

LEAST_SUFFIX = 4
MOST_FOUND = 20
# No index serves the end of an id: only so many of the newest rows are searched by it.
MOST_SEARCHED = 100_000
_ID = re.compile(r"(job|sweep)-[0-9a-f-]{36}")
_PREFIXES = {Job: "job", Sweep: "sweep"}
_SUFFIX = re.compile(rf"[0-9a-f-]{{{LEAST_SUFFIX},39}}")


def matching(
    session: Session,
    handle: str,
    *,
    project: str | None,
    table: type[Job] | type[Sweep] = Job,
    among: Sequence[ColumnElement[bool]] = (),
) -> Sequence[str]:
    """Ids of the rows that a handle stands for, of one project or of all, at most 21: those named so, else those whose
    ids end so. ``among``: conditions on ``table`` that they meet.

    The id of one that does not exist, or belongs to another project, is returned too: the caller's filters decide.
    """
    whole = _ID.fullmatch(handle)
    if whole and whole[1] == _PREFIXES[table]:
        return [handle]
    in_project = [] if project is None else [table.project == project]
    named = select(table.id).where(table.name == handle, *in_project, *among).order_by(table.id.desc())
    found = set(session.scalars(named.limit(MOST_FOUND + 1)))
    if not found and _SUFFIX.fullmatch(handle):
        newest = select(table.id).where(*in_project).order_by(table.created_at.desc(), table.id.desc())
        recent = newest.limit(MOST_SEARCHED).subquery()
        ending = select(table.id).join(recent, recent.c.id == table.id).where(recent.c.id.endswith(handle), *among)
        found.update(session.scalars(ending.limit(MOST_FOUND + 1)))
    return sorted(found)
