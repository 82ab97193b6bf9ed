"""The loop that advances sweeps. Their whole state is in the database, so that any leader continues."""

from collections.abc import Callable
from functools import cached_property

from app.services.operations.control_plane import control_plane
from app.services.requests.control_plane import ControlPlane
from app.services.sweeps import stepping
from app.services.sweeps.search.suggestions import Suggestions
from tasks.background.changes import Poll
from tasks.background.loop import Loop
from tasks.celery_app import Runtime

# Metric points raise no change counter: with a sweep that runs they are read this often.
REPORTS_SECONDS = 0.5


class SweepLoop:
    """One thread; only the leader's works."""

    def __init__(self, runtime: Runtime, is_leader: Callable[[], bool], poll_seconds: float) -> None:
        self._runtime = runtime
        self._is_leader = is_leader
        self._poll_seconds = poll_seconds
        self._suggestions = Suggestions()
        self._due = Poll()
        self._loop = Loop("sweeps", self._work, poll_seconds)

    def start(self) -> None:
        self._loop.start()

    def wake(self) -> None:
        self._due.expect()
        self._loop.wake()

    def stop(self) -> None:
        self._loop.stop()

    def join(self) -> None:
        self._loop.join()
        self._suggestions.close()

    def _work(self) -> float:
        if not self._is_leader():
            self._due.expect()
            return self._poll_seconds
        if self._due.begin():
            found, has_more = stepping.active(self._runtime.database), False
            if found:
                has_more = stepping.step_all(self._plane, self._suggestions, found)
            self._due.end(again_in=0.0 if has_more else REPORTS_SECONDS if found else None)
        return self._due.rest_seconds

    @cached_property
    def _plane(self) -> ControlPlane:
        """Made for the first sweep: a coordinator needs the key of secrets for nothing else."""
        return control_plane(self._runtime.settings, self._runtime.database, self._runtime.dispatcher)
