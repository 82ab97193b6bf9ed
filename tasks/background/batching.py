"""The loop that advances batches of requests."""

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from app.services.batches import stepping
from app.services.batches.reading import Reading
from tasks.background.leader_loop import LeaderLoop
from tasks.celery_app import Runtime

# Shards that jobs store raise no change counter: with a batch that has not ended they are counted this often.
COUNTS_SECONDS = 1.0


class BatchLoop(LeaderLoop):
    def __init__(self, runtime: Runtime, is_leader: Callable[[], bool], poll_seconds: float) -> None:
        super().__init__("batches", runtime, is_leader, poll_seconds)
        self._leads = is_leader
        self._is_stopping = threading.Event()
        self._reading = Reading()

    def stop(self) -> None:
        self._is_stopping.set()
        super().stop()

    def advance(self) -> float | None:
        """As LeaderLoop.advance."""
        found = stepping.live(self._runtime.database)
        self._reading.close_but(found)
        if not found:
            return None
        has_more = stepping.step_all(self.plane, found, _problems_of_body, self._may_go_on, self._reading)
        return 0.0 if has_more else COUNTS_SECONDS

    def _may_go_on(self) -> bool:
        return not self._is_stopping.is_set() and self._leads()


def _problems_of_body(endpoint: str, body: Mapping[str, Any]) -> Sequence[tuple[str, str, str]]:
    # Imported for the first batch: most coordinators never have one.
    from app.compat.openai.batches.checking import check  # noqa: PLC0415

    return check(endpoint, body)
