"""How long the next trials of a sweep will wait: asked once for all that a step makes within a
moment, if their requests are equal.
"""

import time
from collections.abc import Callable
from typing import Any

from sqlalchemy.orm import Session

from app.domain.scheduling.resources import Request
from app.services.requests.control_plane import StartEstimates

FRESH_SECONDS = 1.0  # a step may last minutes, in which other jobs come and end


class StartForecast:
    """Stands for the start estimates of a control plane within one step; not thread-safe."""

    def __init__(self, estimates: StartEstimates, most: int, *, clock: Callable[[], float] = time.monotonic) -> None:
        """``most``: trials that the step may make."""
        self._estimates, self._most, self._clock = estimates, most, clock
        self._asked_at = 0.0
        self._asked: tuple[Request, dict[str, Any]] | None = None
        self._waits: list[float | None] = []

    def of_new(
        self, session: Session, request: Request, *, queue: str, priority: int, project: str, preemptible: bool
    ) -> float | None:
        """As of StartEstimates."""
        asked = {"queue": queue, "priority": priority, "project": project, "preemptible": preemptible}
        now = self._clock()
        is_fresh = now - self._asked_at <= FRESH_SECONDS
        if not self._waits or not is_fresh or self._asked != (request, asked):
            self._asked, self._asked_at = (request, asked), now
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
