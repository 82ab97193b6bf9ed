"""The loop that advances services. Their whole state is in the database, so that any leader continues."""

from collections.abc import Callable
from functools import cached_property

from app.services.operations.control_plane import control_plane
from app.services.requests.control_plane import ControlPlane
from app.services.serving import stepping
from tasks.background.changes import Poll
from tasks.background.loop import Loop
from tasks.celery_app import Runtime

# What gateways count raises no change counter: with a service that has not ended it is read this often.
LOADS_SECONDS = 0.5


class ServiceLoop:
    """One thread; only the leader's works."""

    def __init__(self, runtime: Runtime, is_leader: Callable[[], bool], poll_seconds: float) -> None:
        self._runtime = runtime
        self._is_leader = is_leader
        self._poll_seconds = poll_seconds
        self._due = Poll()
        self._loop = Loop("services", self._work, poll_seconds)

    def start(self) -> None:
        self._loop.start()

    def wake(self) -> None:
        self._due.expect()
        self._loop.wake()

    def stop(self) -> None:
        self._loop.stop()

    def join(self) -> None:
        self._loop.join()

    def _work(self) -> float:
        if not self._is_leader():
            self._due.expect()
            return self._poll_seconds
        if self._due.begin():
            database = self._runtime.database
            if found := stepping.active(database):
                stepping.step_all(self._plane, found)
            self._due.end(again_in=LOADS_SECONDS if stepping.any_live(database) else None)
        return self._due.rest_seconds

    @cached_property
    def _plane(self) -> ControlPlane:
        """Made for the first service: a coordinator needs the key of secrets for nothing else."""
        return control_plane(self._runtime.settings, self._runtime.database, self._runtime.dispatcher)
