"""Runs one attempt from claim to outcome: lease, preparation, ranks, reports, control requests, completion.

Started as ``python -m workers.supervisor.main --job JOB --attempt N`` by the node worker.
"""

from workers.supervisor import lean_imports  # noqa: F401, I001  before all that imports SQLAlchemy

import gc
import logging
import os
import signal
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import closing

from app.domain.errors import LeaseLost, NotFound
from app.domain.lifecycle.events import EventType
from app.database.engine import Database, make_engine
from app.models import Job
from app.services.attempts import failed_pauses, leases, work_orders
from app.services.attempts.leases import ControlRequests
from app.services.attempts.work_orders import WorkOrder
from config.logging import configure_logging, log_crashes
from config.queues import node_name
from config.redaction import Redaction
from config.secrets import secrets_of
from config.settings import Settings, load_settings
from workers.supervisor.recording import disk_space
from app.host import processes
from app.host.forks import run_as_program
from workers.supervisor.assembly import Assembly
from workers.supervisor.finalize import conclude, give_up
from workers.supervisor.finished_attempt import FinishedAttempt
from workers.attempt_failed import AttemptFailed
from workers.supervisor.control.hang_report import KEEP_SECONDS, store_stacks, without_stacks
from workers.supervisor.control.hang_detector import Hang, HangDetector
from trainyard.protocol.messages import MAX_MESSAGE
from workers.prepare.prepare import PreparedAttempt
from workers.supervisor.recording.environment_events import environment_notes
from workers.supervisor.recording.report_writer import Note
from workers.supervisor.recording.run_size import RunSizeWatch
from workers.run_dir.layout import remove_earlier
from workers.sandbox.placements import PlacementConflict
from workers.sandbox.staging import PartLost
from workers.supervisor.next_attempt import ToRun, given_arguments, keeps_program, start_anew

log = logging.getLogger(__name__)

EXIT_LOST = 3
KEEPING_SECONDS = 1.0
# Ranks start soon, and their children come and go.
FIRST_SCANS, FIRST_SCAN_SECONDS, SCAN_SECONDS = 8, 0.4, 5.0


def main() -> int:
    """Run one claimed attempt of this node to its end, and those that follow it in place."""
    gc.freeze()  # what is imported stays; lean_imports has paused the collector meanwhile
    gc.enable()
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)  # a nudge before the handler is set would kill this process
    settings, to_run = load_settings(), given_arguments()
    log_crashes()
    processes.hide_from_same_user()
    processes.adopt_orphans()
    with closing(_database(settings)) as db:
        exit_code, following = _run(settings, db, to_run)
        while following is not None and keeps_program(following):
            exit_code, following = _run(settings, db, following)
    if following is not None:
        start_anew(following)
    return exit_code


def _run(settings: Settings, db: Database, to_run: ToRun) -> tuple[int, ToRun | None]:
    """Run one attempt; returns the exit code, and the attempt that follows in place if one does."""
    began = time.monotonic()
    # Not a logging context: threads start with an empty one.
    redaction = Redaction(secrets_of(settings))
    configure_logging(settings.log.level, process=f"supervisor {to_run.job_id}/{to_run.attempt}", redaction=redaction)
    try:
        work = _register(db, to_run.job_id, to_run.attempt, node_name(settings))
        supervisor = _supervisor(settings, db, work, began, redaction, to_run.checkpoints_asked)
        if supervisor is None:
            return 0, None
        exit_code = supervisor.run()
    except (LeaseLost, NotFound) as error:
        log.warning("nothing to do: %s", error)
        return EXIT_LOST, None
    except Exception:
        log.exception("the supervisor failed; another attempt follows when its lease has run out")
        return 1, None
    if supervisor.following is None:
        return exit_code, None
    log.info("attempt %s follows in place", supervisor.following)
    supervisor.stops.hold_signals()
    return exit_code, ToRun(to_run.job_id, supervisor.following, supervisor.stops.checkpoints_asked)


class Supervisor:
    """Runs one attempt; everything except the database work of its threads happens on the main thread."""

    def __init__(self, assembly: Assembly) -> None:
        self._assembly = assembly
        self._settings, self._db, self._work = assembly.settings, assembly.db, assembly.work
        self._loop, self._context, self._observed = assembly.loop, assembly.context, assembly.observations
        self._run, self._processes = assembly.context.run, assembly.processes
        self._lost = False
        self._prepared: PreparedAttempt | None = None
        self.following: int | None = None  # the attempt that this process runs next
        self._renewal = assembly.renewal(
            on_requests=lambda requests: self._loop.call(lambda: self._apply(requests)), on_lost=self._lose
        )
        self._disk = assembly.disk_watch(on_waiting=self._report_full_disk, on_over=self._end_for_full_disk)
        self._recorders = assembly.recorders(
            self._disk, answer=lambda answer: self._loop.call(lambda: self._ranks.answer(answer)), on_lost=self._lose
        )
        self._gate = assembly.gate(self._recorders)
        self._trackers = assembly.trackers(self._recorders)
        self._ranks = assembly.rank_group(
            self._recorders, on_training=self._keep_tokens, on_pause_failed=self._pause_failed
        )
        self._keeping: threading.Thread | None = None
        self.stops = assembly.stop_controller(self._ranks, withdraw=self._withdraw)
        self._sizes: Sequence[RunSizeWatch] = ()
        self._usage = assembly.usage_sampler(lambda values: self._loop.call(lambda: self._ranks.take_usage(values)))

    def run(self) -> int:
        """Run the attempt to its end; returns the exit code of the process."""
        self._run.write_supervisor(processes.own_identity())
        self.stops.listen_to_signals(self._renewal.nudge)
        if self._work.max_runtime_seconds is not None:
            self.stops.limit_time(self._work.max_runtime_seconds - self._work.ran_seconds)
        self._renewal.start()
        self._trackers.start()
        try:
            self._train()
            if not self._lost:
                self._gate.close()  # before it is killed with the ranks, since it still has something to say
            self._ranks.end(self._patience)
            self._record_left_behind()
            if self._lost:
                log.warning("the lease is lost: the ranks are killed, nothing more is written")
                return EXIT_LOST
            self.conclude()
        finally:
            # After any exception: renewal and fence must outlive the ranks.
            self._ranks.kill(self._patience)
            self._gate.close()
            self._record_left_behind()
            self.close()
        return EXIT_LOST if self._lost else 0

    def _register_processes(self) -> None:
        if not self._ranks.ended:
            scans = self._processes.record(os.getpid())
            self._loop.call_after(FIRST_SCAN_SECONDS if scans < FIRST_SCANS else SCAN_SECONDS, self._register_processes)

    def _record_left_behind(self) -> None:
        """Record processes that are left before anything else is written, so that the node worker finds them."""
        if self._ranks.left_behind:
            self._processes.record(os.getpid())
            self._processes.mark_left_behind()

    def _patience(self) -> float:
        """Seconds until a process that can't be killed is left behind; 0 when another attempt may have the lease."""
        return 0.0 if self._lost else self._settings.watch.stuck_seconds

    def _train(self) -> None:
        if not self._settings.node.keep_runs:
            # Directories of attempts that this process ran before; deleting them must not delay the renewal.
            threading.Thread(target=lambda: remove_earlier(self._run), name="tidy", daemon=True).start()
        threading.Thread(target=self._prepare, name="prepare", daemon=True).start()
        self._loop.run_until(lambda: self._prepared is not None or self._is_over())
        if self._prepared is None or self._is_over():
            return
        try:
            self._ranks.launch(self._prepared, metric_names=self._assembly.metric_names, on_listener=self._gate.serve)
        except (PartLost, PlacementConflict) as error:  # exchanged since it was checked
            self._observed.failure = AttemptFailed("INVALID_CONFIG", str(error))
            return
        except OSError as error:
            cause = "DISK_FULL" if disk_space.is_full(error) else "INTERNAL"
            self._observed.failure = AttemptFailed(cause, f"the ranks could not be started: {error}")
            return
        if self._ranks.access is not None:
            self._ranks.access.begin(self._prepared.plan.sandbox.kind)
        self._register_processes()
        self._usage.start(self._ranks.root_pid)
        self._sizes = self._assembly.size_watches(self._prepared, self._end_for_files)
        for watch in self._sizes:
            watch.start()
        if self._work.part == 0:
            HangDetector(self._loop, self._ranks, self.on_hang).start()
        self._loop.run_until(lambda: self._ranks.ended or self._lost)
        self._observed.broken_devices = self._usage.stop(waits=not self._lost)

    def _is_over(self) -> bool:
        """Whether ranks must not be started any more."""
        return self._lost or self._observed.failure is not None or self._observed.stopping is not None

    def _prepare(self) -> None:
        """On a thread of its own, so that control requests are applied while a model is being fetched."""
        try:
            prepared = self._assembly.prepare(self._recorders, is_over=self._is_over)
            if prepared is None:
                return
            for rejected in prepared.start.rejected if self._work.part == 0 else ():
                self._recorders.reporter.add(
                    Note(
                        kind=EventType.RESUME_FALLBACK,
                        message=rejected.message,
                        data={"checkpoint_id": rejected.checkpoint_id, "resumed_from": prepared.start.checkpoint_id},
                        retires=rejected.checkpoint_id if rejected.corrupt else "",
                    )
                )
            for note in environment_notes(self._work, prepared):
                self._recorders.reporter.add(note)
            self._recorders.checkpoints.begin(prepared.start.shards, self._settings.storage.max_output_files)
            self._prepared = prepared
        except LeaseLost as error:
            self._lose(str(error))
        except AttemptFailed as error:
            self._observed.failure = self._observed.failure or disk_space.named(error)
        except Exception as error:
            log.exception("preparing failed")
            cause = "DISK_FULL" if disk_space.is_full(error) else "INTERNAL"
            self._observed.failure = AttemptFailed(cause, f"preparing failed: {type(error).__name__}: {error}")
        self._loop.wake()

    def _keep_tokens(self) -> None:
        """Copy the tokens of the data into the node's cache, on a thread of its own."""
        tokens = self._prepared.tokens if self._prepared is not None else None
        if tokens is not None:
            self._keeping = threading.Thread(target=tokens.keep, args=(self._run.path,), name="tokens", daemon=True)
            self._keeping.start()

    def _apply(self, requests: ControlRequests) -> None:
        self._ranks.reports.job_step = requests.current_step
        if requests.part_ended and not self._observed.broke:  # else this part may be the cause, and ends anyway
            gone = AttemptFailed("RANK_KILLED", f"its part on node {requests.part_ended} has ended")
            self._end_for(gone, grace_seconds=self._settings.lease.kill_grace_seconds)
        if self._ranks.access is not None:
            self._ranks.access.apply(requests)
        self.stops.apply(requests)

    def _pause_failed(self, why: str) -> None:
        self.stops.pause_failed(why)

    def _withdraw(self, why: str, done: Callable[[], None]) -> None:
        """Withdraw the request for a pause that the ranks could not save for."""

        def write() -> None:
            failed_pauses.withdraw(self._db, self._work, self._context.redaction.bounded(why, MAX_MESSAGE))
            self._loop.call(done)

        self._renewal.run_before_next(write)

    def on_hang(self, hang: Hang) -> None:
        """Store the stacks of the ranks on a thread of its own, then kill them."""
        log.warning("%s", hang)
        self._observed.detect_seconds = round(hang.seconds, 3)
        ranks, writing, root_pid = dict(self._ranks.pids), set(self._ranks.write_stacks), self._ranks.root_pid

        def keep() -> None:
            failure = store_stacks(
                self._context, hang, root_pid, ranks, writing, ask=lambda: self._loop.call(self._ranks.ask_for_stacks)
            )
            self._loop.call(lambda: self._end_for(failure, grace_seconds=0.0))

        threading.Thread(target=keep, name="stacks", daemon=True).start()
        self._loop.call_after(KEEP_SECONDS, lambda: self._end_for(without_stacks(hang), grace_seconds=0.0))

    def _report_full_disk(self, what: str) -> None:
        self._recorders.reporter.add(Note(kind=EventType.WARNING, reason="DISK_FULL", message=what))

    def _end_for_full_disk(self, what: str) -> None:
        """From any thread: end the attempt, because nothing of it can be stored."""
        failure, grace = AttemptFailed("DISK_FULL", what), self._settings.lease.kill_grace_seconds
        self._loop.call(lambda: self._end_for(failure, grace_seconds=grace))

    def _end_for_files(self, what: str) -> None:
        """From any thread: end the attempt, because it keeps too much on a disk."""
        self._loop.call(lambda: self._end_for(AttemptFailed("DISK_LIMIT_EXCEEDED", what), grace_seconds=0.0))

    def _end_for(self, failure: AttemptFailed, *, grace_seconds: float) -> None:
        if not self._ranks.ended and self._observed.failure is None:
            self._observed.failure = failure
            self._ranks.terminate(grace_seconds)

    def _lose(self, reason: str) -> None:
        """From any thread: the lease is lost; another attempt may begin soon, so this one must end."""
        log.warning("lease lost: %s", reason)
        self._lost = True
        self._loop.wake()

    def conclude(self) -> None:
        """Store the results and write the outcome, unless the lease is lost."""
        try:
            ending = conclude(
                FinishedAttempt(
                    settings=self._settings,
                    began=self._assembly.began,
                    context=self._context,
                    observations=self._observed,
                    ranks=self._ranks,
                    recorders=self._recorders,
                    trackers=self._trackers,
                    renewal=self._renewal,
                    loop=self._loop,
                    disk=self._disk,
                    is_lost=lambda: self._lost,
                    machine_stops=lambda: self.stops.machine_stops,
                )
            )
            log.info("the end is written: %s", ending or "the attempt ends on another node")
            self.following = ending.restart if ending is not None else None
            if ending is not None and ending.restart is None:
                self._trackers.end(ending.state)
            self._lost = False  # a renewal may have read the next attempt's token as a lost lease
        except LeaseLost as error:
            self._lose(str(error))

    def close(self) -> None:
        """End all threads, and remove the run directory unless it is still needed."""
        for watch in self._sizes:
            watch.stop()
        self._renewal.stop()
        self._trackers.close()
        if self._keeping is not None:
            self._keeping.join(KEEPING_SECONDS)  # a copy that takes longer is given up
        self._recorders.close()
        self._loop.close()
        if self._prepared is not None:
            self._prepared.plan.release()
        # The node worker needs the directory to find the process that was left behind.
        if self._ranks.left_behind:
            return
        if self._settings.node.keep_runs:
            self._processes.mark_ended()
        elif self.following is None:
            self._run.remove()


def _supervisor(
    settings: Settings, db: Database, work: WorkOrder, began: float, redaction: Redaction, checkpoints_asked: int | None
) -> Supervisor | None:
    """None when there is no disk space for the run directory; the outcome is written then."""
    try:
        assembly = Assembly(
            settings,
            db,
            work,
            began,
            redaction=redaction,
            metric_names=_metric_names(db, work),
            checkpoints_asked=checkpoints_asked,
        )
        return Supervisor(assembly)
    except OSError as error:
        if not disk_space.is_full(error):
            raise
        give_up(settings, db, work, AttemptFailed("DISK_FULL", f"the run directory could not be made: {error}"))
        return None


def _register(db: Database, job_id: str, attempt: int, node: str) -> WorkOrder:
    """Register this process as the attempt's supervisor, and load its work order."""
    work = work_orders.load_work(db, job_id, attempt, node=node)
    identity = processes.own_identity()
    leases.register_supervisor(
        db, work.lease_id, pid=identity.pid, started=identity.start_ticks, boot_id=identity.place
    )
    return work


def _metric_names(db: Database, work: WorkOrder) -> Sequence[str]:
    """Names of metrics from earlier attempts: their number is bounded for all attempts together."""
    with db.read() as session:
        return tuple(session.get_one(Job, work.job_id).latest_metrics or {})


def _database(settings: Settings) -> Database:
    """One connection is enough: transactions are short, and servers count connections."""
    engine = make_engine(
        settings.database.url,
        busy_seconds=settings.database.busy_seconds,
        pool_size=1,
        # An answer after the fence has fired is useless.
        statement_seconds=settings.lease.fence_seconds * 0.8,
    )
    return Database().bind(engine)


if __name__ == "__main__":
    run_as_program(main)
