"""The loop that advances sweeps."""

import time
from collections.abc import Callable, Collection, Sequence

from app.services.sweeps import stepping
from app.services.sweeps.ends import TrialEnds
from app.services.sweeps.search.suggestions import Suggestions
from tasks.background.leader_loop import LeaderLoop
from tasks.celery_app import Runtime

# Metric points raise no change counter: with a sweep that runs they are read this often.
REPORTS_SECONDS = 0.5


class SweepLoop(LeaderLoop):
    def __init__(self, runtime: Runtime, is_leader: Callable[[], bool], poll_seconds: float) -> None:
        super().__init__("sweeps", runtime, is_leader, poll_seconds)
        self._suggestions = Suggestions()
        self._ends = TrialEnds(runtime.database)
        self._watched: Collection[str] = ()  # sweeps with running trials, as of the last step of all sweeps
        self._took = 0.0  # seconds that the last step took

    def join(self) -> None:
        super().join()
        self._suggestions.close()

    def advance(self) -> float | None:
        """As LeaderLoop.advance."""
        active = stepping.active(self._runtime.database)
        has_more = self._step(active)
        self._watched = self._ends.to_watch(active)
        if not active:
            return None
        return 0.0 if has_more else REPORTS_SECONDS

    def _work(self) -> float:
        """As of every loop of a leader; between the steps of all sweeps, those of which a trial ends are stepped."""
        if self._watches() and self._due.rest_seconds > 0:
            self._step_early(sorted(self._ends.new_among(self._watched)))
        rest = super()._work()
        return min(rest, max(self._ends.seconds, self._took)) if self._watches() else rest

    def _watches(self) -> bool:
        return bool(self._watched) and self._is_leader()

    def _step_early(self, sweep_ids: Sequence[str]) -> None:
        if not sweep_ids:
            return
        try:
            if self._step(sweep_ids):
                self._due.expect()  # all sweeps are stepped before it makes more
        finally:
            self._rings.ring()

    def _step(self, sweep_ids: Sequence[str]) -> bool:
        begun = time.monotonic()
        try:
            return stepping.step_all(self.plane, self._suggestions, sweep_ids) if sweep_ids else False
        finally:
            self._took = time.monotonic() - begun
