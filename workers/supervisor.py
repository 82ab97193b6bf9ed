"""One attempt from claim to outcome: holds the lease, prepares, runs the ranks, relays, obeys wishes, concludes.

Started as ``python -m workers.supervisor --job JOB --attempt N``; ``start_attempt`` does that.
"""

from workers import lean_start  # noqa: F401, I001  before all that imports SQLAlchemy

import argparse
import logging
import signal
import sys
import threading
import time
from collections.abc import Sequence

from app.domain import hyperparameters
from app.domain.errors import LeaseLost, NotFound
from app.domain.events import EventType
from app.extensions import Database, make_engine
from app.models import Job
from app.services import artifacts, attempts, leases
from app.services.attempts import Work
from app.services.leases import Wishes
from app.storage.storage import Storage
from config.logging import configure_logging, log_crashes
from config.redaction import Redaction, secrets_of
from config.settings import Settings, load_settings
from workers import processes
from workers.checkpoint_store import CheckpointStore
from workers.concluding import Attempt, conclude
from workers.event_store import EventStore
from workers.failures import AttemptFailed
from workers.fence import Fence
from workers.log_store import LogStore
from workers.main_loop import MainLoop
from workers.outcomes import TIME_LIMIT, Sightings
from workers.preparing import Prepared, prepare
from workers.ranks import Ranks
from workers.renewal import Renewal
from workers.reports import Note, Reporter
from workers.run_directory import run_directory
from workers.spawning import start_attempt
from workers.usage import UsageWatch

__all__ = ["Supervisor", "main", "start_attempt"]

log = logging.getLogger(__name__)

EXIT_LOST = 3
TIME_LIMIT_SAVE_SECONDS = 30.0
# A node that drains, or `trainyard up` that was asked to stop, waits 30 s for its jobs.
REQUEUE_SAVE_SECONDS = 25.0
# A person waits, and the devices with them: long enough for the checkpoint of a large model at the end of a long step.
PAUSE_SAVE_SECONDS = 600.0
SAVE_SECONDS = {"pause": PAUSE_SAVE_SECONDS, "requeue": REQUEUE_SAVE_SECONDS}


def main() -> int:
    """Run one claimed attempt of this node to its end."""
    began = time.monotonic()
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)  # a nudge may come before anybody listens, and would end us
    arguments = _arguments()
    settings = load_settings()
    # Not a logging context: threads start with an empty one.
    redaction = Redaction(secrets_of(settings))
    process = f"supervisor {arguments.job}/{arguments.attempt}"
    configure_logging(settings.log.level, process=process, redaction=redaction)
    log_crashes()
    processes.hide_from_same_user()
    processes.adopt_orphans()
    db = _database(settings)
    try:
        work = _register(db, arguments.job, arguments.attempt)
        return Supervisor(settings, db, work, began, redaction=redaction, metric_names=_metric_names(db, work)).run()
    except (LeaseLost, NotFound) as error:
        log.warning("nothing to do: %s", error)
        return EXIT_LOST
    except Exception:
        log.exception("the supervisor failed; another attempt follows when its lease has run out")
        return 1
    finally:
        db.close()


class Supervisor:
    """The life of one attempt; everything but the database work of its threads happens on the main thread."""

    def __init__(
        self, settings: Settings, db: Database, work: Work, began: float, *, redaction: Redaction | None = None,
        metric_names: Sequence[str] = (),
    ) -> None:  # fmt: skip
        self._settings, self._db, self._work, self._began = settings, db, work, began
        self._redaction = redaction or Redaction()
        self._metric_names = metric_names
        self._loop = MainLoop()
        self._storage = Storage(settings.storage.url)
        self._run = run_directory(settings.data.dir, work.job_id, work.attempt)
        self._run.make()
        self._seen = Sightings(
            custom=work.framework == hyperparameters.CUSTOM, time_limit_seconds=work.max_runtime_seconds
        )
        self._lost = False
        self._prepared: Prepared | None = None
        self._checkpoints_asked: int | None = None
        self._renewal = Renewal(
            settings.lease,
            Fence(),
            lambda: leases.renew(db, lease_id=work.lease_id, fence=work.fence),
            on_wishes=lambda wishes: self._loop.call(lambda: self._obey(wishes)),
            on_lost=self._lose,
        )
        self._reporter = Reporter(db, work, self._lose, redaction)
        self._logs = LogStore(self._storage, work.job_id, work.attempt)
        self._events = EventStore(
            self._storage, work.job_id, work.attempt,
            record=lambda new: artifacts.record(db, job_id=work.job_id, fence=work.fence, new=new),
        )  # fmt: skip
        self._checkpoints = CheckpointStore(
            db, self._storage, work, self._run, self._reporter,
            answer=lambda message: self._loop.call(lambda: self._ranks.answer(message)), on_lost=self._lose,
        )  # fmt: skip
        self._ranks = Ranks(
            self._loop, self._run, self._seen,
            reporter=self._reporter, checkpoints=self._checkpoints, logs=self._logs, events=self._events,
        )  # fmt: skip
        self._usage = UsageWatch(work.devices, lambda values: self._loop.call(lambda: self._ranks.take_usage(values)))

    def run(self) -> int:
        """The process's exit code."""
        self._run.write_supervisor(processes.own_identity())
        self._listen_to_signals()
        self._limit_time()
        self._renewal.start()
        try:
            self._train()
            self._ranks.end()
            if self._lost:
                log.warning("the lease is lost: the ranks are killed, nothing more is written")
                return EXIT_LOST
            self._conclude()
        finally:
            # Whatever was raised: as long as a rank lives, renewal and fence watch over it.
            self._ranks.kill()
            self._close()
        return EXIT_LOST if self._lost else 0

    def _train(self) -> None:
        threading.Thread(target=self._prepare, name="prepare", daemon=True).start()
        self._loop.run_until(lambda: self._prepared is not None or self._is_over())
        if self._prepared is None or self._is_over():
            return
        try:
            self._ranks.launch(self._prepared, metric_names=self._metric_names)
        except OSError as error:
            self._seen.failure = AttemptFailed("INTERNAL", f"the ranks could not be started: {error}")
            return
        self._usage.start(self._ranks.root_pid)
        self._loop.run_until(lambda: self._ranks.ended or self._lost)
        self._usage.stop()

    def _is_over(self) -> bool:
        """Whether there is no reason to start ranks any more."""
        return self._lost or self._seen.failure is not None or self._seen.stopping is not None

    def _prepare(self) -> None:
        """On a thread of its own, so that wishes are obeyed also while a model is being fetched."""
        try:
            prepared = prepare(self._settings, self._db, self._storage, self._work, self._run, self._redaction)
            for rejected in prepared.start.rejected:
                self._reporter.add(
                    Note(
                        kind=EventType.RESUME_FALLBACK,
                        message=f"checkpoint at step {rejected.step} can't be used: {rejected.reason}",
                        data={"checkpoint_id": rejected.checkpoint_id, "resumed_from": prepared.start.checkpoint_id},
                        retires=rejected.checkpoint_id if rejected.corrupt else "",
                    )
                )
            self._prepared = prepared
        except AttemptFailed as error:
            self._seen.failure = error
        except Exception as error:
            log.exception("preparing failed")
            self._seen.failure = AttemptFailed("INTERNAL", f"preparing failed: {type(error).__name__}: {error}")
        self._loop.wake()

    def _obey(self, wishes: Wishes) -> None:
        if self._checkpoints_asked is None:
            self._checkpoints_asked = wishes.checkpoint_requests
        if wishes.requested == "cancel":
            self._cancel()
        elif wishes.requested is not None:
            self._stop(wishes.requested, save=wishes.pause_saves or wishes.requested != "pause")
        while self._checkpoints_asked < wishes.checkpoint_requests:
            self._checkpoints_asked += 1
            self._ranks.ask_for_checkpoint()

    def _cancel(self) -> None:
        if self._seen.stopping != "cancel":
            self._seen.stopping = "cancel"
            self._ranks.terminate(self._settings.lease.kill_grace_seconds)

    def _stop(self, wish: str, *, save: bool) -> None:
        if self._seen.stopping is not None:
            return
        self._seen.stopping = wish
        self._ask_to_stop(wish, save=save, seconds=SAVE_SECONDS[wish])

    def _ask_to_stop(self, wish: str, *, save: bool, seconds: float) -> None:
        """Give the ranks that long to save and stop; what is not saved by then is done again."""
        grace = self._settings.lease.kill_grace_seconds
        if self._ranks.ask_to_stop(wish, save=save):
            self._loop.call_after(seconds, lambda: self._ranks.terminate(grace))
        else:
            self._ranks.terminate(grace)

    def _limit_time(self) -> None:
        if self._work.max_runtime_seconds is not None:
            left = self._work.max_runtime_seconds - self._work.ran_seconds
            self._loop.call_after(max(0.0, left), self._end_of_time)

    def _end_of_time(self) -> None:
        if self._seen.stopping is not None:
            return
        self._seen.stopping = TIME_LIMIT
        # To the ranks it is a pause: they save and stop.
        self._ask_to_stop("pause", save=True, seconds=TIME_LIMIT_SAVE_SECONDS)

    def _lose(self, reason: str) -> None:
        """From any thread: another attempt may begin soon, so nothing of this one may go on."""
        log.warning("lease lost: %s", reason)
        self._lost = True
        self._loop.wake()

    def _conclude(self) -> None:
        try:
            state = conclude(
                Attempt(
                    settings=self._settings, db=self._db, storage=self._storage, work=self._work, run=self._run,
                    seen=self._seen, ranks=self._ranks, reporter=self._reporter, checkpoints=self._checkpoints,
                    logs=self._logs, events=self._events, renewal=self._renewal, loop=self._loop,
                    lost=lambda: self._lost, began=self._began, redaction=self._redaction,
                )
            )  # fmt: skip
            log.info("the attempt has ended, the job is %s", state)
        except LeaseLost as error:
            self._lose(str(error))

    def _close(self) -> None:
        self._renewal.stop()
        self._checkpoints.close()
        self._reporter.close()
        self._logs.close(0.0)
        self._events.close(0.0)
        self._loop.close()
        if not self._settings.node.keep_runs:
            self._run.remove()

    def _listen_to_signals(self) -> None:
        grace = self._settings.lease.kill_grace_seconds

        def give_back() -> None:
            # The machine goes down: no time to save, the job goes on elsewhere from its last checkpoint.
            if self._seen.stopping is None:
                self._seen.stopping = "requeue"
            self._ranks.terminate(grace)

        # A handler may interrupt anything, therefore both only leave a note for the loop.
        signal.signal(signal.SIGUSR1, lambda _number, _frame: self._loop.call(self._renewal.nudge))
        signal.signal(signal.SIGTERM, lambda _number, _frame: self._loop.call(give_back))


def _register(db: Database, job_id: str, attempt: int) -> Work:
    """Make this process known as the attempt's supervisor, and get its work order."""
    work = attempts.load_work(db, job_id, attempt)
    identity = processes.own_identity()
    leases.register_supervisor(
        db, work.lease_id, pid=identity.pid, started=identity.start_ticks, boot_id=identity.place
    )
    return work


def _metric_names(db: Database, work: Work) -> Sequence[str]:
    """What the job has reported in earlier attempts: the number of names is bounded for all of them together."""
    with db.read() as session:
        return tuple(session.get_one(Job, work.job_id).latest_metrics or {})


def _database(settings: Settings) -> Database:
    """One connection is enough: transactions are short, and servers count connections."""
    engine = make_engine(
        settings.database.url,
        busy_seconds=settings.database.busy_seconds,
        pool_size=1,
        # An answer that comes after the fence fell is no use.
        statement_seconds=settings.lease.fence_seconds * 0.8,
    )
    return Database().bind(engine)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="workers.supervisor", description=__doc__)
    parser.add_argument("--job", required=True)
    parser.add_argument("--attempt", required=True, type=int)
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
