"""All tracking services of a job, as its supervisor sees them: started, finished, closed."""

import logging
import time
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any
from urllib.parse import urlsplit

from app.database.engine import Database
from app.domain.spec.model import WANDB
from app.services.attempts.work_orders import WorkOrder
from config.settings import Settings
from workers.tracking.child import TrackingChild, plain_child
from workers.tracking.points import count_after
from workers.tracking.relay import TrackingRelay, TrackingService
from workers.tracking.run_facts import service_request

log = logging.getLogger(__name__)

# For a service that was away at the last try, for attempts whose end users wait for, and for the job's last state.
SHORT_SECONDS = 2.0
_ENDS_BY_ITSELF = ("completed", "failed")
_INTERRUPTED = ("paused", "preempted", "requeued")  # what is missing is sent by the next attempt, as a rule
OnWarning = Callable[[str, dict[str, object]], None]
StartConfined = Callable[[Mapping[str, Any]], TrackingChild]  # for a first request; raises NotDelivered


class Trackers:
    """Serves nothing for jobs without ``tracking``, and on nodes of a gang other than the first.

    ``on_warning`` gets message and data for the job's history, on any thread; ``confined`` starts the processes of
    clients that must be kept from other servers.
    """

    def __init__(
        self, settings: Settings, db: Database, work: WorkOrder, on_warning: OnWarning, confined: StartConfined
    ) -> None:
        self._end_seconds = settings.tracking.end_seconds
        self._db, self._work, self._on_warning, self._confined = db, work, on_warning, confined
        self._relays = tuple(
            TrackingRelay(db, work.job_id, service, lambda problem: on_warning(problem, {}))
            for service in self._services(settings, work)
        )

    def start(self) -> None:
        """From here on new points are delivered."""
        for relay in self._relays:
            relay.start()

    def finish(self, outcome: str) -> None:
        """Deliver the rest within a bounded time, and say in the job's history what could not be delivered.

        ``outcome`` is how the attempt has ended; people wait for the ends of all but completed and failed ones. Only a
        client that sends in the background gets more time when the job was cancelled.
        """
        now = time.monotonic()
        rounds = [
            (relay, relay.begin_round(outcome=outcome), self._seconds_of(relay, outcome)) for relay in self._relays
        ]
        for relay, last, seconds in rounds:
            relay.wait(last, max(0.0, now + seconds - time.monotonic()))
            self._report(relay)

    def end(self, state: str) -> None:
        """Send the job's state to the services that answer, once that is written."""
        now, at_ms = time.monotonic(), int(time.time() * 1000)
        rounds = [(relay, relay.begin_round(state=state, at_ms=at_ms)) for relay in self._relays if not relay.problem]
        for relay, last in rounds:
            relay.wait(last, max(0.0, now + SHORT_SECONDS - time.monotonic()))

    def close(self) -> None:
        for relay in self._relays:
            relay.close()

    def _seconds_of(self, relay: TrackingRelay, outcome: str) -> float:
        if relay.problem or outcome in _INTERRUPTED:
            return SHORT_SECONDS
        # What a client has in memory is lost with it, and no attempt sends it again.
        return self._end_seconds if relay.is_late or outcome in _ENDS_BY_ITSELF else SHORT_SECONDS

    def _services(self, settings: Settings, work: WorkOrder) -> tuple[TrackingService, ...]:
        """Never raises: secrets that can't be opened fail the attempt elsewhere, with their cause."""
        try:
            return tuple(_services(settings, work, self._confined))
        except Exception as error:
            log.exception("tracking is not served")
            self._on_warning(f"tracking is not served because of a fault of the platform: {type(error).__name__}", {})
            return ()

    def _report(self, relay: TrackingRelay) -> None:
        """Never raises: the job's results must not depend on this."""
        try:
            missing = count_after(self._db, self._work.job_id, relay.reached, attempt=self._work.attempt)
        except Exception as error:  # noqa: BLE001 – whatever the database has; its next user reports it
            log.warning("%s: what it lacks could not be counted: %s", relay.what, error)
            return
        if missing:
            points = "1 metric point was" if missing == 1 else f"{missing} metric points were"
            delivered = "certainly delivered" if relay.is_late else "delivered"
            problem = f": {relay.problem}" if relay.problem else ""
            self._on_warning(f"{relay.what}: {points} not {delivered}{problem}", {"points": missing})


def _services(settings: Settings, work: WorkOrder, confined: StartConfined) -> Iterable[TrackingService]:
    """The services of the job's document, in its order, but for an offline run, which goes to none."""
    ours = settings.tracking
    for number, tracker in enumerate(work.document.tracking if work.part == 0 else ()):
        if tracker.is_offline:
            continue
        first, is_wandb = service_request(settings, work, number), tracker.kind == WANDB
        yield TrackingService(
            what=f"tracking.{number} ({tracker.kind} at {urlsplit(first['service']['url']).hostname})",
            first=first,
            timeout_seconds=ours.timeout_seconds,
            flush_seconds=ours.flush_seconds,
            start=partial(confined, first) if is_wandb else plain_child,
            is_late=is_wandb,
        )
