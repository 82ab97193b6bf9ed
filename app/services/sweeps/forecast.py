"""How long the next trials of a sweep will wait: asked once for all that a step makes, if their requests are equal."""

from typing import Any

from sqlalchemy.orm import Session

from app.domain.scheduling.resources import Request
from app.services.requests.control_plane import StartEstimates


class Forecast:
    """Stands for the start estimates of a control plane within one step; not thread-safe."""

    def __init__(self, estimates: StartEstimates, most: int) -> None:
        """``most``: trials that the step may make."""
        self._estimates, self._most = estimates, most
        self._asked: tuple[Request, dict[str, Any]] | None = None
        self._waits: list[float | None] = []

    def of_new(
        self, session: Session, request: Request, *, queue: str, priority: int, project: str, preemptible: bool
    ) -> float | None:
        """As of StartEstimates."""
        asked = {"queue": queue, "priority": priority, "project": project, "preemptible": preemptible}
        if not self._waits or self._asked != (request, asked):
            self._asked = request, asked
            self._waits = self.of_several(session, request, self._most, **asked)
        return self._waits[0]

    def of_several(self, session: Session, request: Request, count: int, **asked: Any) -> list[float | None]:
        """As of StartEstimates, always asked anew."""
        return self._estimates.of_several(session, request, count, **asked)

    def advance(self) -> None:
        """One of them was made."""
        self._waits = self._waits[1:]

    def forget(self) -> None:
        """Others wait now."""
        self._waits = []
