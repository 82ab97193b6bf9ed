"""Capacity of the registered nodes, cached for a moment, since every submission checks it."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from sqlalchemy.orm import Session

from app.domain.errors import CannotFit
from app.domain.nodes.project_demand import NO_DEMAND, ProjectDemand, demanding, sharing
from app.domain.scheduling.feasibility import waits_for_node
from app.domain.scheduling.resources import NodeCapacity, Request, request_of
from app.domain.spec.model import JobDocument
from app.services.nodes import project_demands, registry
from app.services.nodes.device_kinds import Gpus, fitting_request, gpus
from app.services.nodes.project_demands import explained

REMEMBERED_SECONDS = 1.0


@dataclass(frozen=True, kw_only=True)
class _Seen:
    at: float
    nodes: Sequence[NodeCapacity]
    gpus: Gpus
    demands: Mapping[str, ProjectDemand]  # of projects


class ClusterInventory:
    """One per process; thread-safe."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._seen: _Seen | None = None

    def request(self, session: Session, document: JobDocument, project: str) -> Request:
        """The job's resource request. Raises CannotFit when no registered node could ever hold it.

        A refusal is never based on the cache: a node may have registered since.
        """
        try:
            return self._fitting(session, document, project)
        except CannotFit:
            self._seen = None
            return self._fitting(session, document, project)

    def request_that_waits(
        self, session: Session, document: JobDocument, project: str
    ) -> tuple[Request, CannotFit | None]:
        """What a job asks for, and why it waits for a node, if it does. Raises CannotFit when it does not wait."""
        try:
            return self.request(session, document, project), None
        except CannotFit as error:
            if not waits_for_node(document):
                raise
            seen = self._look(session)
            request = request_of(document, has_gpus=seen.gpus.for_auto)
            return sharing(demanding(request, seen.demands.get(project, NO_DEMAND)), project), error

    def capacities(self, session: Session) -> Sequence[NodeCapacity]:
        """Capacities of all registered nodes, possibly slightly outdated."""
        return self._look(session).nodes

    def capacities_now(self, session: Session) -> Sequence[NodeCapacity]:
        """As `capacities`, read again: for a refusal."""
        self._seen = None
        return self._look(session).nodes

    def unused_gpus(self, session: Session, document: JobDocument, request: Request) -> list[str]:
        """As ``Gpus.unused_by``."""
        return self._look(session).gpus.unused_by(document, request)

    def _fitting(self, session: Session, document: JobDocument, project: str) -> Request:
        seen = self._look(session)
        demand = seen.demands.get(project, NO_DEMAND)
        try:
            return sharing(fitting_request(document, seen.gpus, seen.nodes, demand), project)
        except CannotFit as error:
            raise explained(error, demand) from None

    def _look(self, session: Session) -> "_Seen":
        seen, now = self._seen, self._clock()
        if seen is None or now - seen.at > REMEMBERED_SECONDS:
            nodes = registry.capacities(session, only_ready=False)
            demands = project_demands.of_projects(session)
            seen = self._seen = _Seen(at=now, nodes=nodes, gpus=gpus(session), demands=demands)
        return seen
