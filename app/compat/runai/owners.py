"""Whose a workload is in Run:ai's terms, and where its ports are: what its document alone does not say."""

from collections.abc import Callable
from typing import NamedTuple

from app.domain.lifecycle.states import TERMINAL
from app.http.context import backend
from app.services.access import api_keys, projects
from app.services.interactive.addresses import port_address
from app.services.rows import Job, Session


class Owner(NamedTuple):
    """The number of its project and the name of the key that created it; ``ports_url``: of gateways, if any."""

    project: int
    author: str
    ports_url: str = ""

    def address_of(self, job: Job) -> Callable[[str], str | None]:
        """Name of a port of the job → its address; None where no gateway serves ports, and after the job's end."""
        is_served = bool(self.ports_url) and job.state not in TERMINAL
        return lambda name: port_address(self.ports_url, job.id, name) if is_served else None


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
        ports_url = backend().settings.gateway.ports_url
        return Owner(self._numbers[job.project], self._names[job.created_by], ports_url)
