"""The coordinator's own work, independent of messages: planning, preflight, reaping, sweeps, services, batches,
mirroring and housekeeping, each in its own thread.

All of it reads only the database, so it works without a broker from the start.
"""

import logging
import time
from collections.abc import Callable, Sequence

from celery import Celery

from app.host.process_names import own_name
from app.migrations import versioning
from app.services.operations.orphan_cleanup import OrphanSweep
from app.services.operations.retention import rules as retention
from app.services.preflight import admission
from app.services.queues import queues
from app.services.requests.storage_access import reading_rules
from app.services.scheduling import planner
from app.services.scheduling.leader_election import RENEW_SECONDS, LeaderLease
from app.services.scheduling.placement import Dispatched
from app.services.scheduling.planning_loop import LONGEST_UNCHANGED_SECONDS, PlanningLoop
from config.queues import ADMISSION_PREFIX, DEFAULT_ADMISSION_QUEUE
from tasks.background.batching import BatchLoop
from tasks.background.changes import FULL_POLL_SECONDS, Changes, Poll
from tasks.background.due_times import DueTimes
from tasks.background.leader_loop import LeaderLoop
from tasks.background.loop import LOG_AGAIN_SECONDS, MAX_BACKOFF_SECONDS, Loop
from tasks.background.own_admissions import OwnAdmissions
from tasks.background.preflight import PreflightRunner, preflight_policy
from tasks.background.reaping import ReaperLoop
from tasks.background.result_mirror import CHECK_LOSS_SECONDS, ResultMirror
from tasks.background.serving import ServiceLoop
from tasks.background.sweeping import SweepLoop
from tasks.background.webhook_delivery import WebhookDeliverer
from tasks.celery_app import Runtime, SubmittedJob

# Under `trainyard up` the coordinator starts before the tables exist, and must not add a delay.
SCHEMA_POLL_SECONDS = 0.05
SCHEMA_PATIENCE_SECONDS, SCHEMA_WARNING_SECONDS = 5.0, 30.0  # until it says what it waits for, and how often
BEAT_SECONDS = 2.0
ANNOUNCE_SECONDS = 2.0
ORPHANS_SECONDS = 60.0
RETENTION_SECONDS = 3600.0

_Thread = Loop | PreflightRunner | WebhookDeliverer | ReaperLoop | LeaderLoop | Changes
logger = logging.getLogger(__name__)


class Coordination:
    """Started before Celery's consumer, so it needs no broker. Only the leader plans and reaps."""

    _warns_at = 0.0  # when it next says that it waits for the schema

    def __init__(self, celery: Celery, name: str, *, consume: Callable[[str], None]) -> None:
        runtime: Runtime = celery.runtime
        self._runtime, self._name, self._consume = runtime, name, consume
        self._consumed = {DEFAULT_ADMISSION_QUEUE}
        self._identity = own_name()
        self._poll_seconds = poll = runtime.settings.scheduler.poll_seconds
        self._leader_lease = LeaderLease(runtime.database, self._identity)
        self._passes = PlanningLoop(runtime.database, "planner")
        self._mirror = ResultMirror(celery)
        self._leftovers = OrphanSweep(runtime.database, runtime.settings.storage.url)
        self._due_announce, self._due_retention, self._due_beat, self._due_complaints = (DueTimes() for _ in range(4))
        self._own_admissions = OwnAdmissions(runtime.dispatcher.ring_admit)
        self._to_plan = Poll(LONGEST_UNCHANGED_SECONDS)
        self._to_announce, self._to_admit, self._to_show, self._to_consume = (Poll() for _ in range(4))
        self._planner = Loop("planner", self._plan, poll)
        # In its own loop: it reads files, and a slow disk must not delay the planner.
        self._admission = Loop("admission", self._admit, poll)
        self._mirroring = Loop("mirror", self._show, poll)
        self._inspector = PreflightRunner(runtime, name)
        self._deliverer = WebhookDeliverer(runtime)
        self._reaper = ReaperLoop(runtime, name, lambda: self._leader_lease.is_leader, self._go_on)
        self._sweeps = SweepLoop(runtime, lambda: self._leader_lease.is_leader, poll)
        self._services = ServiceLoop(runtime, lambda: self._leader_lease.is_leader, poll)
        self._batches = BatchLoop(runtime, lambda: self._leader_lease.is_leader, poll)
        self._gate = Loop("schema", self._start_once_there, SCHEMA_POLL_SECONDS)
        self._loops: list[_Thread] = [
            Changes(runtime.database, poll, self._pass_on),
            *(self._planner, self._admission, self._reaper, self._mirroring, self._services),
            Loop("signs of life", self._beat, BEAT_SECONDS),
            # in its own loop: a slow remote storage must not delay the reaper
            Loop("orphans", self._delete_orphans, ORPHANS_SECONDS),
            Loop("retention", self._prune, BEAT_SECONDS),
            self._inspector,
            self._deliverer,
            # in its own loop: it waits for the process of a method
            self._sweeps,
            # in its own loop: it reads and writes files
            self._batches,
        ]

    def start(self) -> None:
        self._runtime.on_admitted = lambda _job_id: self._go_on()
        self._runtime.on_submitted = self._expect_submitted
        self._warns_at = time.monotonic() + SCHEMA_PATIENCE_SECONDS
        self._gate.start()

    def stop(self) -> None:
        for loop in (self._gate, *self._loops):
            loop.stop()
        for loop in (self._gate, *self._loops):
            loop.join()

    def _start_once_there(self) -> None:
        """Waits for the tables: without them every loop would fail and log it."""
        engine = self._runtime.database.engine
        if versioning.is_current(engine):
            self._gate.stop()
            for loop in self._loops:
                loop.start()
        elif time.monotonic() >= self._warns_at:
            self._warns_at = time.monotonic() + SCHEMA_WARNING_SECONDS
            with engine.connect() as connection:
                found = versioning.revision_of(connection)
            logger.warning(
                "waits: the database has the schema of revision %s, and this program needs %s; run `trainyard db "
                "upgrade`, or start the version that the database has",
                found or "none",
                versioning.HEAD,
            )

    def _pass_on(self) -> None:
        """Something has changed in the database: every loop asks whether it concerns it."""
        for poll in (self._to_announce, self._to_admit, self._to_show, self._to_consume):
            poll.expect()
        self._admission.wake()
        self._mirroring.wake()
        self._reaper.wake()
        self._deliverer.wake()
        self._sweeps.wake()
        self._services.wake()
        self._batches.wake()
        self._go_on()

    def _expect_submitted(self, submitted: Sequence[SubmittedJob]) -> None:
        self._own_admissions.expect(submitted)
        self._to_admit.expect()
        self._admission.wake()

    def _go_on(self) -> None:
        """Continue with a job that was admitted, queued for inspection, or has lost its lease."""
        self._inspector.wake()
        self._to_plan.expect()
        self._planner.wake()

    def _plan(self) -> float:
        now = time.monotonic()
        if not self._leader_lease.acquire(now):
            self._to_plan.expect()
            return self._poll_seconds  # a leader that dies is replaced at once
        if self._to_plan.begin():
            policy = planner.policy_of(self._runtime.settings)
            again_in = self._passes.run_pass(policy, self._runtime.dispatcher.nudge, self._announce)
            self._to_plan.end(FULL_POLL_SECONDS if again_in is None else max(again_in, self._poll_seconds))
        if self._due_announce.is_due("announce", ANNOUNCE_SECONDS, now) and self._to_announce.begin():
            self._announce_again()
        renewal = (self._leader_lease.renewed_at or now) + RENEW_SECONDS - time.monotonic()
        return max(0.0, min(self._to_plan.rest_seconds, renewal))

    def _announce_again(self) -> None:
        """Wake the nodes of attempts that were announced long ago, for as long as any is not claimed."""
        database, resend = self._runtime.database, self._runtime.settings.scheduler.resend_seconds
        is_any_unclaimed = planner.any_unclaimed(database)
        if is_any_unclaimed:
            self._wake_nodes(planner.unannounced(database, older_than_seconds=resend))
        self._to_announce.end(again_in=0.0 if is_any_unclaimed else None)

    def _announce(self, placed: list[Dispatched]) -> None:
        # a pass that starts many jobs takes long, and a leader that stops renewing is replaced
        self._leader_lease.acquire(time.monotonic())
        self._wake_nodes(placed)

    def _admit(self) -> float:
        settings = self._runtime.settings
        if not self._leader_lease.is_leader:
            self._to_admit.expect()
            return self._poll_seconds
        if self._to_admit.begin():
            failures: list[str] = []

            def failed(job_ids: Sequence[str], error: Exception) -> None:
                failures.extend(job_ids)
                self._complain(job_ids, error)

            with self._own_admissions.round():
                admitted = admission.admit_waiting(
                    self._runtime.database,
                    reading_rules(settings),
                    inspection=preflight_policy(settings),
                    inventory=self._runtime.inventory,
                    failed=failed,
                )
            if admitted:
                self._go_on()
            again_in = MAX_BACKOFF_SECONDS if failures else None
            self._to_admit.end(again_in=self._poll_seconds if admitted else again_in)  # there may be another batch
        return self._to_admit.rest_seconds

    def _complain(self, job_ids: Sequence[str], error: Exception) -> None:
        """Of a job that fails in every round, one traceback a minute: rounds follow every change."""
        if self._due_complaints.is_due(job_ids[0], LOG_AGAIN_SECONDS, time.monotonic()):
            logger.error("admission failed and will be retried: %s", ", ".join(job_ids), exc_info=error)

    def _wake_nodes(self, dispatched: list[Dispatched]) -> None:
        by_queue: dict[tuple[str, str, int], list[tuple[str, int]]] = {}
        for d in dispatched:
            by_queue.setdefault((d.node, d.device_type, d.priority), []).append((d.job_id, d.attempt))
        for (node, device_type, priority), attempts in by_queue.items():
            self._runtime.dispatcher.ring_run(attempts, node, device_type, priority)

    def _delete_orphans(self) -> None:
        if self._leader_lease.is_leader:
            self._leftovers.run_round()

    def _prune(self) -> None:
        settings = self._runtime.settings
        wanted = settings.retention.enabled and self._leader_lease.is_leader
        if wanted and self._due_retention.is_due("retention", RETENTION_SECONDS, time.monotonic()):
            for rule, pruned in retention.prune(self._runtime.database, settings, actor=self._name):
                if pruned.count:
                    logger.info("%s deleted: %d, because of %s", rule.what, pruned.count, rule.variable or "age")

    def _show(self) -> float:
        if not self._leader_lease.is_leader:
            self._to_show.expect()
            return self._poll_seconds
        now = time.monotonic()
        if self._mirror.notice_loss(now):
            self._to_show.expect()
        if self._to_show.begin():
            self._to_show.end(again_in=self._mirror.show_changes(now))
        return min(self._to_show.rest_seconds, CHECK_LOSS_SECONDS)

    def _beat(self) -> None:
        self._own_admissions.announce_if_stuck()
        renewed_at, now = self._leader_lease.renewed_at, time.monotonic()
        # A leader that renews raises the heartbeat's counter, too; now and then the row itself is made sure of.
        is_seen = renewed_at is not None and now - renewed_at < RENEW_SECONDS + BEAT_SECONDS
        if not is_seen or self._due_beat.is_due("beat", FULL_POLL_SECONDS, now):
            planner.beat(self._runtime.database, self._name, self._identity)
        if self._to_consume.begin():
            for name in queues.names(self._runtime.database):
                queue = f"{ADMISSION_PREFIX}{name}"
                if queue not in self._consumed:
                    self._consume(queue)
                    self._consumed.add(queue)
            self._to_consume.end()
