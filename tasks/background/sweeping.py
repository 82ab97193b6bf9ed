"""The loop that advances sweeps."""

from collections.abc import Callable, Sequence

from app.services.sweeps import stepping
from app.services.sweeps.ends import Ends
from app.services.sweeps.search.suggestions import Suggestions
from tasks.background.leader_loop import LeaderLoop
from tasks.celery_app import Runtime

# Metric points raise no change counter: with a sweep that runs they are read this often.
REPORTS_SECONDS = 0.5


class SweepLoop(LeaderLoop):
    def __init__(self, runtime: Runtime, is_leader: Callable[[], bool], poll_seconds: float) -> None:
        super().__init__("sweeps", runtime, is_leader, poll_seconds)
        self._suggestions = Suggestions()
        self._ends = Ends(runtime.database)
        self._active: Sequence[str] = ()  # as of the last step

    def join(self) -> None:
        super().join()
        self._suggestions.close()

    def advance(self) -> float | None:
        """As LeaderLoop.advance."""
        self._active = stepping.active(self._runtime.database)
        if not self._active:
            return None
        has_more = stepping.step_all(self.plane, self._suggestions, self._active)
        return 0.0 if has_more else REPORTS_SECONDS

    def _work(self) -> float:
        """As of every loop of a leader, and at once when a trial ends."""
        watches = bool(self._active) and self._is_leader()
        if watches and self._ends.any_new(self._active):
            self._due.expect()
        rest = super()._work()
        return min(rest, self._ends.seconds) if watches else rest
