"""Capacity of the registered nodes, cached for a moment, since every submission checks it."""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from sqlalchemy.orm import Session

from app.domain.errors import CannotFit
from app.domain.scheduling.feasibility import refuse_unfitting
from app.domain.scheduling.resources import NodeCapacity, Request, request_of
from app.services.nodes import registry

REMEMBERED_SECONDS = 1.0


class Inventory:
    """One per process; thread-safe."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._seen: tuple[float, Sequence[NodeCapacity]] | None = None

    def request(self, session: Session, document: Mapping[str, Any]) -> Request:
        """The job's resource request. Raises CannotFit when no registered node could ever hold it.

        A refusal is never based on the cache: a node may have registered since.
        """
        try:
            return _fitting(document, self.capacities(session))
        except CannotFit:
            self._seen = None
            return _fitting(document, self.capacities(session))

    def capacities(self, session: Session) -> Sequence[NodeCapacity]:
        """Capacities of all registered nodes, possibly slightly outdated."""
        seen, now = self._seen, self._clock()
        if seen is None or now - seen[0] > REMEMBERED_SECONDS:
            seen = self._seen = (now, registry.capacities(session, only_ready=False))
        return seen[1]


def _fitting(document: Mapping[str, Any], capacities: Sequence[NodeCapacity]) -> Request:
    has_gpus = any(not device.is_cpu for node in capacities for device in node.devices)
    request = request_of(document, has_gpus=has_gpus)
    refuse_unfitting(request, capacities)
    return request
