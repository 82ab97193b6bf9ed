"""The owner of a workload in Run:ai's terms: the number of its project and the name of the key that created it."""

from typing import NamedTuple

from app.services.access import api_keys, projects
from app.services.rows import Job, Session


class Owner(NamedTuple):
    project: int
    author: str


class Owners:
    """Owners of the workloads of one response; each project and key is read once."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._numbers: dict[str, int] = {}
        self._names: dict[str, str] = {}

    def of(self, job: Job) -> Owner:
        if job.project not in self._numbers:
            self._numbers[job.project] = projects.number_of(self._session, job.project)
        if job.created_by not in self._names:
            named = api_keys.names(self._session, [job.created_by])
            self._names[job.created_by] = named.get(job.created_by, job.created_by)
        return Owner(self._numbers[job.project], self._names[job.created_by])
