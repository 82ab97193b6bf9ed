"""The loop that advances sweeps."""

from collections.abc import Callable

from app.services.sweeps import stepping
from app.services.sweeps.search.suggestions import Suggestions
from tasks.background.leader_loop import LeaderLoop
from tasks.celery_app import Runtime

# Metric points raise no change counter: with a sweep that runs they are read this often.
REPORTS_SECONDS = 0.5


class SweepLoop(LeaderLoop):
    def __init__(self, runtime: Runtime, is_leader: Callable[[], bool], poll_seconds: float) -> None:
        super().__init__("sweeps", runtime, is_leader, poll_seconds)
        self._suggestions = Suggestions()

    def join(self) -> None:
        super().join()
        self._suggestions.close()

    def advance(self) -> float | None:
        """As LeaderLoop.advance."""
        found = stepping.active(self._runtime.database)
        if not found:
            return None
        has_more = stepping.step_all(self.plane, self._suggestions, found)
        return 0.0 if has_more else REPORTS_SECONDS
