"""Handles of jobs: a job's id, its name, or the end of its id, as people type them."""

import re
from collections.abc import Sequence

from sqlalchemy import select
from sqlalchemy.orm import Session

from app.domain.ids import JOB_ID
from app.models import Job

LEAST_SUFFIX = 4
MOST_FOUND = 20
# No index serves the end of an id: only so many of the newest jobs are searched by it.
MOST_SEARCHED = 100_000
_SUFFIX = re.compile(rf"[0-9a-f-]{{{LEAST_SUFFIX},39}}")


def matching(session: Session, handle: str, *, project: str | None) -> Sequence[str]:
    """Ids of the jobs that a handle stands for, of one project or of all, at most 21: those named so, else those whose
    ids end so.

    The id of a job that does not exist, or belongs to another project, is returned too: the caller's filters decide.
    """
    if JOB_ID.fullmatch(handle):
        return [handle]
    in_project = [] if project is None else [Job.project == project]
    named = select(Job.id).where(Job.name == handle, *in_project).order_by(Job.id.desc()).limit(MOST_FOUND + 1)
    found = set(session.scalars(named))
    if not found and _SUFFIX.fullmatch(handle):
        newest = select(Job.id).where(*in_project).order_by(Job.created_at.desc(), Job.id.desc()).limit(MOST_SEARCHED)
        recent = newest.subquery()
        ending = select(recent.c.id).where(recent.c.id.endswith(handle)).limit(MOST_FOUND + 1)
        found.update(session.scalars(ending))
    return sorted(found)
