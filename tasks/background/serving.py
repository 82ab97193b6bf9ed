"""The loop that advances services."""

from collections.abc import Callable

from app.services.serving import stepping
from tasks.background.leader_loop import LeaderLoop
from tasks.celery_app import Runtime

# What gateways count raises no change counter: with a service that has not ended it is read this often.
LOADS_SECONDS = 0.5


class ServiceLoop(LeaderLoop):
    def __init__(self, runtime: Runtime, is_leader: Callable[[], bool], poll_seconds: float) -> None:
        super().__init__("services", runtime, is_leader, poll_seconds)

    def advance(self) -> float | None:
        """As LeaderLoop.advance."""
        database = self._runtime.database
        if found := stepping.active(database):
            stepping.step_all(self.plane, found)
        return LOADS_SECONDS if stepping.any_live(database) else None
