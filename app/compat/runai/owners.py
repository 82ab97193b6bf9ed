"""Whom a workload belongs to, as Run:ai tells it: the number of its project and the name of whoever made it."""

from typing import NamedTuple

from sqlalchemy import select
from sqlalchemy.orm import Session

from app.compat.authors import Authors
from app.models import Job, Project


class Owner(NamedTuple):
    project: int
    author: str


class Owners:
    """Of the workloads of one answer; each project and key is looked up once."""

    def __init__(self, session: Session) -> None:
        self._session, self._authors = session, Authors(session)
        self._numbers: dict[str, int] = {}

    def of(self, job: Job) -> Owner:
        if job.project not in self._numbers:
            number = self._session.scalars(select(Project.number).where(Project.name == job.project)).one()
            self._numbers[job.project] = number
        return Owner(self._numbers[job.project], self._authors.name_of(job))
