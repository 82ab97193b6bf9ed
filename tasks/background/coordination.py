"""The coordinator's own work, independent of messages: planning, preflight, reaping, mirroring and housekeeping, each
in its own thread.

All of it reads only the database, so it works without a broker from the start.
"""

import logging
import time
from collections.abc import Callable

from celery import Celery

from app.host.process_names import own_name
from app.migrations.versioning import is_current
from app.services.attempts.lost_leases_and_nodes import Reaper
from app.services.nodes import quarantine
from app.services.operations import housekeeping
from app.services.operations.orphan_cleanup import OrphanSweep
from app.services.operations.retention import rules as retention
from app.services.preflight import admission, inspections
from app.services.queues import gpu_budgets, queues
from app.services.requests.storage_access import reading_rules
from app.services.scheduling import planner
from app.services.scheduling.leader_election import LeaderLease
from app.services.scheduling.placement import Dispatched
from app.services.scheduling.planning_loop import PlanningLoop
from app.services.webhooks import deliveries
from config.queues import ADMISSION_PREFIX, DEFAULT_ADMISSION_QUEUE
from tasks.background.loop import Loop
from tasks.background.preflight import PreflightRunner, preflight_policy
from tasks.background.result_mirror import ResultMirror
from tasks.background.webhook_delivery import WebhookDeliverer
from tasks.celery_app import Runtime

# Under `trainyard up` the coordinator starts before the tables exist, and must not add a delay.
SCHEMA_POLL_SECONDS = 0.05
BEAT_SECONDS = 2.0
ANNOUNCE_SECONDS = 2.0
QUARANTINE_SECONDS = 2.0
BUDGET_SECONDS = 5.0
HOUSEKEEPING_SECONDS = 600.0
SWEEP_SECONDS = 60.0
RETENTION_SECONDS = 3600.0

logger = logging.getLogger(__name__)


class Coordination:
    """Started before Celery's consumer, so it needs no broker. Only the leader plans and reaps."""

    def __init__(self, celery: Celery, name: str, *, consume: Callable[[str], None]) -> None:
        runtime: Runtime = celery.runtime
        poll = runtime.settings.scheduler.poll_seconds
        self._runtime = runtime
        self._name = name
        self._consume = consume
        self._consumed = {DEFAULT_ADMISSION_QUEUE}
        self._identity = own_name()
        self._leader_lease = LeaderLease(runtime.database, self._identity)
        self._passes = PlanningLoop(runtime.database, "planner")
        self._reaper = Reaper(runtime.database, runtime.settings, actor=name)
        self._mirror = ResultMirror(celery)
        self._leftovers = OrphanSweep(runtime.database, runtime.settings.storage.url)
        self._due: dict[str, float] = {}
        self._planner = Loop("planner", self._plan, poll)
        # In its own loop: it reads files, and a slow disk must not delay the planner.
        self._admission = Loop("admission", self._admit, poll)
        self._inspector = PreflightRunner(runtime, name)
        self._deliverer = WebhookDeliverer(runtime)
        self._gate = Loop("schema", self._start_once_there, SCHEMA_POLL_SECONDS)
        self._loops = [
            self._planner,
            self._admission,
            Loop("reaper", self._reap, max(poll, 0.5)),
            Loop("mirror", self._show, poll),
            Loop("signs of life", self._beat, BEAT_SECONDS),
            # in its own loop: a slow remote storage must not delay the reaper
            Loop("sweep", self._sweep, SWEEP_SECONDS),
            Loop("retention", self._prune, BEAT_SECONDS),
        ]

    def start(self) -> None:
        self._runtime.on_admitted = lambda _job_id: self._go_on()
        self._gate.start()

    def stop(self) -> None:
        loops: list[Loop | PreflightRunner | WebhookDeliverer] = [
            self._gate,
            *self._loops,
            self._inspector,
            self._deliverer,
        ]
        for loop in loops:
            loop.stop()
        for loop in loops:
            loop.join()

    def _start_once_there(self) -> None:
        """Waits for the tables: without them every loop would fail and log it."""
        if is_current(self._runtime.database.engine):
            self._gate.stop()
            for loop in self._loops:
                loop.start()
            self._inspector.start()
            self._deliverer.start()

    def _go_on(self) -> None:
        """Continue with a job that was admitted, or queued for inspection."""
        self._inspector.wake()
        self._planner.wake()

    def _plan(self) -> None:
        now = time.monotonic()
        if not self._leader_lease.acquire(now):
            return
        db, settings = self._runtime.database, self._runtime.settings
        self._passes.run_pass(planner.policy_of(settings), self._runtime.dispatcher.nudge, self._announce)
        if self._is_due("announce", ANNOUNCE_SECONDS, now):
            resend = settings.scheduler.resend_seconds
            self._wake_nodes(planner.unannounced(db, older_than_seconds=resend))

    def _announce(self, placed: list[Dispatched]) -> None:
        # a pass that starts many jobs takes long, and a leader that stops renewing is replaced
        self._leader_lease.acquire(time.monotonic())
        self._wake_nodes(placed)

    def _admit(self) -> None:
        settings = self._runtime.settings
        if not self._leader_lease.is_leader:
            return
        if admission.admit_waiting(
            self._runtime.database, reading_rules(settings), inspection=preflight_policy(settings)
        ):
            self._go_on()

    def _wake_nodes(self, dispatched: list[Dispatched]) -> None:
        by_queue: dict[tuple[str, str, int], list[tuple[str, int]]] = {}
        for d in dispatched:
            by_queue.setdefault((d.node, d.device_type, d.priority), []).append((d.job_id, d.attempt))
        for (node, device_type, priority), attempts in by_queue.items():
            self._runtime.dispatcher.ring_run(attempts, node, device_type, priority)

    def _reap(self) -> None:
        now = time.monotonic()
        if not self._leader_lease.is_leader:
            self._reaper.reset()
            return
        self._reaper.sweep(now)
        if self._is_due("budgets", BUDGET_SECONDS, now):
            gpu_budgets.requeue_over_budget(
                self._runtime.database, actor=self._name, nudge=self._runtime.dispatcher.nudge
            )
        if self._is_due("quarantine", QUARANTINE_SECONDS, now):
            quarantine.evaluate(self._runtime.database, quarantine.rule_of(self._runtime.settings), actor=self._name)
        # Not Celery beat: this needs no broker, and leader election already limits it to one coordinator.
        if self._is_due("housekeeping", HOUSEKEEPING_SECONDS, now):
            housekeeping.drop_old_replies(self._runtime.database)
            housekeeping.drop_dead_coordinators(self._runtime.database)
            inspections.drop_old(self._runtime.database)
            quarantine.drop_old(self._runtime.database, quarantine.rule_of(self._runtime.settings))
            kept_days = self._runtime.settings.webhook.kept_days
            deliveries.drop_old(self._runtime.database, kept_days=kept_days)

    def _sweep(self) -> None:
        if self._leader_lease.is_leader:
            self._leftovers.run_round()

    def _prune(self) -> None:
        settings = self._runtime.settings
        wanted = settings.retention.enabled and self._leader_lease.is_leader
        if wanted and self._is_due("retention", RETENTION_SECONDS, time.monotonic()):
            for rule, pruned in retention.prune(self._runtime.database, settings, actor=self._name):
                if pruned.count:
                    logger.info("%s deleted: %d, because of %s", rule.what, pruned.count, rule.variable or "age")

    def _show(self) -> None:
        if self._leader_lease.is_leader:
            self._mirror.show_changes(time.monotonic())

    def _beat(self) -> None:
        planner.beat(self._runtime.database, self._name, self._identity)
        for name in queues.names(self._runtime.database):
            queue = f"{ADMISSION_PREFIX}{name}"
            if queue not in self._consumed:
                self._consume(queue)
                self._consumed.add(queue)

    def _is_due(self, what: str, every_seconds: float, now: float) -> bool:
        if now < self._due.get(what, 0.0):
            return False
        self._due[what] = now + every_seconds
        return True
