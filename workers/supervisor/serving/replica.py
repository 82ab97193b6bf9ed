"""What a supervisor does for the replica of a service besides watching its rank: relay, endpoint, adapters."""

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from app.database.engine import Database
from app.database.transient_errors import is_transient
from app.domain.errors import LeaseLost, StaleJob
from app.services.attempts import endpoints
from app.services.attempts.work_orders import WorkOrder
from trainyard.protocol.messages import FetchAdapter
from workers.attempt_failed import AttemptFailed
from workers.supervisor.ranks.observations import Observations
from workers.supervisor.serving.adapters import Adapters
from workers.supervisor.serving.probe import NoAnswer, probe
from workers.supervisor.serving.relay_process import RelayFailed, RelayPlace, RelayProcess

log = logging.getLogger(__name__)

PROBE_SECONDS = 10.0  # for an answer, and between two probes of an engine that has answered
FIRST_SECONDS = 60.0  # from the phase until the engine answers
RETRY_SECONDS = 0.2
JOIN_SECONDS = 2.0


@dataclass(frozen=True, kw_only=True)
class ReplicaCalls:
    """What a replica needs of its supervisor; both from any thread."""

    on_lost: Callable[[str], None]
    on_failed: Callable[[AttemptFailed], None]


class ServedReplica:
    """Methods belong to the loop's thread, which is the main thread."""

    def __init__(
        self,
        db: Database,
        work: WorkOrder,
        observed: Observations,
        adapters: Adapters,
        *,
        place: Callable[[], RelayPlace],
        calls: ReplicaCalls,
        stuck_seconds: float,
    ) -> None:
        """``stuck_seconds``: an engine that does not answer its health check for this long hangs."""
        self._db, self._work, self._observed = db, work, observed
        self._adapters = adapters
        self._place = place
        self._calls = calls
        self._stuck_seconds = stuck_seconds
        self._relay = RelayProcess()
        self._closed = threading.Event()
        self._thread: threading.Thread | None = None

    def begin(self) -> None:
        """The engine listens: start the relay; what follows happens on a thread of its own."""
        if self._observed.stopping is not None or self._closed.is_set():
            return
        try:
            place = self._place()
            self._relay.start(place)
        except AttemptFailed as error:
            self._calls.on_failed(error)
        except OSError as error:
            self._calls.on_failed(AttemptFailed("INTERNAL", f"the relay could not be started: {error}"))
        else:
            self._thread = threading.Thread(target=self._serve, args=[place], name="replica", daemon=True)
            self._thread.start()

    def fetch(self, request: FetchAdapter) -> None:
        """Fetch an adapter for the rank."""
        self._adapters.ask(request)

    def close(self, *, hurries: bool = False) -> None:
        """End relay and threads; nothing is recorded any more, unless the database is just writing it.

        ``hurries``: another attempt may have the lease, so that nothing more may be answered.
        """
        if self._closed.is_set():
            return
        self._closed.set()
        self._relay.close(hurries=hurries)
        self._adapters.close()
        if self._thread is not None:
            self._thread.join(JOIN_SECONDS)

    def _serve(self, place: RelayPlace) -> None:
        try:
            port = self._relay.port()
            self._wait_for_answer(place, port)
            self._record(place, port)
            self._watch(place, port)
        except LeaseLost as error:
            self._calls.on_lost(str(error))
        except AttemptFailed as error:
            self._fail(error)
        except RelayFailed as error:
            self._fail(AttemptFailed("INTERNAL", f"the relay: {error}"))
        except Exception as error:
            log.exception("the replica can't be served")
            self._fail(AttemptFailed("INTERNAL", f"the replica can't be served: {type(error).__name__}: {error}"))

    def _fail(self, failure: AttemptFailed) -> None:
        if not self._closed.is_set():
            self._calls.on_failed(failure)

    def _wait_for_answer(self, place: RelayPlace, port: int) -> None:
        """Raises AttemptFailed."""
        until = time.monotonic() + FIRST_SECONDS
        while not self._closed.is_set():
            try:
                probe(place.address, port, place.token, seconds=PROBE_SECONDS)
            except NoAnswer as error:
                if time.monotonic() >= until:
                    what = f"the engine does not answer {FIRST_SECONDS:g} s after it began to listen: {error}"
                    raise AttemptFailed("TRAINER_ERROR", what) from error
                self._closed.wait(RETRY_SECONDS)
            else:
                return

    def _record(self, place: RelayPlace, port: int) -> None:
        """Raises LeaseLost and NotFound."""
        while not self._closed.is_set() and self._observed.stopping is None:
            try:
                endpoints.record(self._db, self._work, address=place.address, port=port)
            except Exception as error:
                if not is_transient(error) and not isinstance(error, StaleJob):
                    raise
                log.warning("the endpoint could not be recorded yet: %s", error)
                self._closed.wait(RETRY_SECONDS)
            else:
                self._observed.answers = True
                return

    def _watch(self, place: RelayPlace, port: int) -> None:
        """Raises AttemptFailed when the engine hangs while it has nothing to do; else its steps are watched."""
        answered, failed = time.monotonic(), 0
        while not self._closed.wait(PROBE_SECONDS) and self._observed.stopping is None:
            try:
                probe(place.address, port, place.token, seconds=PROBE_SECONDS)
                answered, failed = time.monotonic(), 0
            except NoAnswer as error:
                failed += 1
                if failed > 1 and time.monotonic() - answered > self._stuck_seconds:
                    what = f"the engine has not answered its health check for {self._stuck_seconds:g} s: {error}"
                    raise AttemptFailed("HANG", what) from error
