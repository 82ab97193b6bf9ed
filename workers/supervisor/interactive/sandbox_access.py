"""Opens the sandbox of an attempt to people: the session server in it, the relay to that, and where it is recorded."""

import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta

from app.database.engine import Database
from app.database.transient_errors import is_transient
from app.domain.errors import LeaseLost, StaleJob
from app.domain.lifecycle.events import EventType
from app.domain.spec.hyperparameters.parsing import CUSTOM
from app.domain.spec.interactive import ReadinessProbe
from app.models.base import utc_now
from app.services.attempts import interactive_endpoints
from app.services.attempts.leases import ControlRequests
from app.services.attempts.work_orders import WorkOrder
from trainyard.protocol.channel import KEPT, OPEN_SESSIONS, RELEASE, SESSIONS, Message
from trainyard.protocol.messages import RankExit, clean_text
from workers.attempt_failed import AttemptFailed
from workers.sandbox.sandbox import PROCESS
from workers.supervisor.interactive import port_probe
from workers.supervisor.interactive.port_probe import Way
from workers.supervisor.interactive.readiness import watch_notebook, watch_readiness
from workers.supervisor.interactive.setup import probed_part
from workers.supervisor.ranks.observations import ENDS_KEPT, Observations
from workers.supervisor.recording.report_writer import Note
from workers.supervisor.serving.relay_process import RelayFailed, RelayPlace, RelayProcess

log = logging.getLogger(__name__)

ANSWER_SECONDS = 15.0  # for the agent
RETRY_SECONDS = 0.2  # after an error of the database
AGAIN_SECONDS = 10.0  # before another try, when it could not be opened
JOIN_SECONDS = 2.0
NOT_OF_THE_NODE = (
    "its node runs jobs without a sandbox (TRAINYARD_NODE_SANDBOX=process), where a shell in a job that runs no script "
    "of its own would be one of the node; run it on a node with a sandbox"
)


@dataclass(frozen=True, kw_only=True)
class AccessCalls:
    """What it needs of its supervisor; ``add`` and ``on_lost`` are called from any thread."""

    place: Callable[[], RelayPlace]
    tell_agent: Callable[[Message], None]
    on_kept: Callable[[], None]
    add: Callable[[Note], None]
    on_lost: Callable[[str], None]


class SandboxAccess:
    """Methods belong to the loop's thread, which is the main thread; waiting and writing happens on others."""

    def __init__(
        self,
        db: Database,
        work: WorkOrder,
        observed: Observations,
        calls: AccessCalls,
        *,
        notebook: dict[str, str] | None = None,
    ) -> None:
        self._db, self._work, self._observed, self._calls, self._notebook = db, work, observed, calls, notebook
        config = work.document.interactive_config
        self._wanted = bool(config.ports or config.notebook or config.readiness_probe is not None)
        self._sandbox = ""  # its kind, once the ranks have started
        self._relay = RelayProcess()
        self._opened = self._failed = self._refused = False
        self._opened_at = 0.0
        self._answered, self._message = threading.Event(), ""
        self._closed = threading.Event()
        self._watches = False
        self._way: Way | None = None
        self._thread: threading.Thread | None = None

    def begin(self, sandbox: str) -> None:
        """The ranks have started, in a sandbox of this kind."""
        self._sandbox = sandbox
        if self._wanted:
            self._open()

    def apply(self, requests: ControlRequests) -> None:
        """People want to reach it, for which they ask again and again; or it may go, which stays after a failure."""
        if requests.interactive:
            self._wanted = True
            if self._sandbox:
                self._open()
        if self._observed.kept and (requests.release or requests.requested in ENDS_KEPT):
            self._calls.tell_agent({"type": RELEASE})

    def take(self, message: Message) -> None:
        """What the agent says of its sandbox."""
        if message["type"] == SESSIONS:
            self._message = clean_text(message.get("message"))
            self._answered.set()
        elif message["type"] == KEPT and not self._observed.kept:
            self._observed.kept = True
            self._calls.on_kept()
            self._calls.add(self._kept())

    def close(self, *, hurries: bool = False) -> None:
        """End the relay; nothing is recorded any more, unless the database is just writing it."""
        if self._closed.is_set():
            return
        self._closed.set()
        self._answered.set()
        self._relay.close(hurries=hurries)
        if self._thread is not None and not hurries:
            self._thread.join(JOIN_SECONDS)

    def _open(self) -> None:
        if self._closed.is_set() or self._refused or not self._is_due():
            return
        self._opened, self._failed, self._opened_at = True, False, time.monotonic()
        if self._sandbox == PROCESS and self._work.framework != CUSTOM:
            self._refused = True
            self._on_thread(lambda: self._record(message=NOT_OF_THE_NODE))
            return
        try:
            place = self._calls.place()
            self._relay.close(hurries=True)
            self._relay.start(place)
        except (AttemptFailed, OSError) as error:
            reason = f"its sandbox can't be opened: {error}"
            self._failed = True
            self._on_thread(lambda: self._record(message=reason))
            return
        self._answered.clear()
        self._calls.tell_agent({"type": OPEN_SESSIONS, "notebook": self._notebook})
        self._on_thread(lambda: self._finish(place))

    def _is_due(self) -> bool:
        if not self._opened:
            return True
        if self._thread is not None and self._thread.is_alive():
            return False
        broken = self._failed or self._relay.has_ended
        return broken and time.monotonic() - self._opened_at > AGAIN_SECONDS

    def _on_thread(self, task: Callable[[], None]) -> None:
        def run() -> None:
            try:
                task()
            except LeaseLost as error:
                self._calls.on_lost(str(error))
            except Exception:
                self._failed = True
                log.exception("the sandbox can't be opened to people")

        self._thread = threading.Thread(target=run, name="interactive", daemon=True)
        self._thread.start()

    def _finish(self, place: RelayPlace) -> None:
        """Raises LeaseLost."""
        try:
            port = self._relay.port()
            if not self._answered.wait(ANSWER_SECONDS):
                raise RelayFailed(f"its agent has not answered within {ANSWER_SECONDS:g} s")
            if self._message:
                raise RelayFailed(self._message)
        except RelayFailed as error:
            self._failed = True
            self._record(message=f"its sandbox can't be opened: {error}")
            return
        self._record(address=place.address, port=port)
        self._watch(Way(address=place.address, port=port, token=place.token))

    def _record(self, *, address: str = "", port: int = 0, message: str = "") -> None:
        """Raises LeaseLost."""
        while not self._closed.is_set():
            try:
                interactive_endpoints.record(self._db, self._work, address=address, port=port, message=message)
            except Exception as error:
                if not is_transient(error) and not isinstance(error, StaleJob):
                    raise
                log.warning("where the sandbox is reached could not be recorded yet: %s", error)
                self._closed.wait(RETRY_SECONDS)
            else:
                return

    def _watch(self, way: Way) -> None:
        """Each in the part that has it. A relay that was started again has another port."""
        self._way = way
        if self._watches:
            return
        self._watches = True
        config = self._work.document.interactive_config
        if (probe := config.readiness_probe) is not None and self._work.part == probed_part(self._work):
            self._also(lambda: watch_readiness(probe, self._probe, add=self._calls.add, closed=self._closed))
        if self._notebook is not None:
            self._also(lambda: watch_notebook(way, add=self._calls.add, closed=self._closed))

    def _probe(self, probe: ReadinessProbe) -> None:
        """Raises NoAnswer."""
        if self._way is not None:
            port_probe.ask(self._way, probe)

    def _kept(self) -> Note:
        seconds = self._work.document.interactive_config.keep_on_failure_seconds
        until = utc_now() + timedelta(seconds=seconds)
        return Note(
            kind=EventType.KEPT,
            message=f"{_failure(self._observed.exits)}; sandbox and devices stay until {until:%Y-%m-%d %H:%M:%S} UTC; "
            f"trainyard release {self._work.job_id} ends them earlier, and so does cancelling or pausing the job",
            data={"seconds": seconds},
            columns={"kept_until": until},
        )

    def _also(self, task: Callable[[], None]) -> None:
        threading.Thread(target=task, name="readiness", daemon=True).start()


def _failure(exits: Sequence[RankExit]) -> str:
    """By the rank that failed first; on the other nodes of a gang none has."""
    gone = next((each for each in exits if each.exit_code != 0), None)
    if gone is None:
        return "its script has failed"
    return f"rank {gone.rank} ended with {gone.signal or f'exit code {gone.exit_code}'}"
