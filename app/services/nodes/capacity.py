"""Capacity of the registered nodes, cached for a moment, since every submission checks it."""

import time
from collections.abc import Callable, Sequence

from sqlalchemy.orm import Session

from app.domain.errors import CannotFit
from app.domain.scheduling.feasibility import refuse_unfitting, waits_for_node
from app.domain.scheduling.resources import NodeCapacity, Request, request_of
from app.domain.spec.model import JobDocument
from app.services.nodes import registry

REMEMBERED_SECONDS = 1.0


class Inventory:
    """One per process; thread-safe."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._seen: tuple[float, Sequence[NodeCapacity]] | None = None

    def request(self, session: Session, document: JobDocument) -> Request:
        """The job's resource request. Raises CannotFit when no registered node could ever hold it.

        A refusal is never based on the cache: a node may have registered since.
        """
        request = self._request(session, document)
        try:
            refuse_unfitting(request, self.capacities(session))
        except CannotFit:
            self._seen = None
            request = self._request(session, document)
            refuse_unfitting(request, self.capacities(session))
        return request

    def request_that_waits(self, session: Session, document: JobDocument) -> tuple[Request, CannotFit | None]:
        """What a job asks for, and why it waits for a node, if it does. Raises CannotFit when it does not wait."""
        try:
            return self.request(session, document), None
        except CannotFit as error:
            if not waits_for_node(document):
                raise
            return self._request(session, document), error

    def capacities(self, session: Session) -> Sequence[NodeCapacity]:
        """Capacities of all registered nodes, possibly slightly outdated."""
        seen, now = self._seen, self._clock()
        if seen is None or now - seen[0] > REMEMBERED_SECONDS:
            seen = self._seen = (now, registry.capacities(session, only_ready=False))
        return seen[1]

    def _request(self, session: Session, document: JobDocument) -> Request:
        devices = (device for node in self.capacities(session) for device in node.devices)
        return request_of(document, has_gpus=any(not device.is_cpu for device in devices))
