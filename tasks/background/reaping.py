"""The reaper's loop: leases and nodes that stand still, GPU budgets, quarantine, and housekeeping."""

import time
from collections.abc import Callable

from app.services.access import web_sessions
from app.services.attempts.lost_leases_and_nodes import Reaper
from app.services.interactive import attending
from app.services.nodes import device_usage, quarantine
from app.services.operations import housekeeping
from app.services.preflight import inspections
from app.services.queues import gpu_budgets
from app.services.webhooks import deliveries
from tasks.background.changes import Poll
from tasks.background.due_times import DueTimes
from tasks.background.loop import Loop
from tasks.celery_app import Runtime

SHORTEST_SECONDS = 0.5
# Without live leases only nodes are watched, which count as lost after seconds.
IDLE_SECONDS = 2.5
QUARANTINE_SECONDS = 2.0
BUDGET_SECONDS = 5.0
HOUSEKEEPING_SECONDS = 600.0
SESSIONS_SECONDS = 30.0  # after a gateway's end its sessions are ended


class ReaperLoop:
    """Works only while ``is_leader``; a new leader starts counting from the beginning. ``on_revoked``: as of Reaper."""

    def __init__(
        self, runtime: Runtime, name: str, is_leader: Callable[[], bool], on_revoked: Callable[[], None]
    ) -> None:
        self._runtime = runtime
        self._name = name
        self._is_leader = is_leader
        self._reaper = Reaper(runtime.database, runtime.settings, actor=name, on_revoked=on_revoked)
        self._poll_seconds = max(runtime.settings.scheduler.poll_seconds, SHORTEST_SECONDS)
        self._due = DueTimes()
        self._due_poll = Poll()
        self._loop = Loop("reaper", self._reap, self._poll_seconds)

    def start(self) -> None:
        self._loop.start()

    def wake(self) -> None:
        self._due_poll.expect()
        self._loop.wake()

    def stop(self) -> None:
        self._loop.stop()

    def join(self) -> None:
        self._loop.join()

    def _reap(self) -> float:
        if not self._is_leader():
            self._reaper.reset()
            self._due_poll.expect()
            return self._poll_seconds
        now = time.monotonic()
        # While a lease is live its counter is read at every turn; a new one is a change.
        asks = self._due_poll.begin()
        is_any_live = self._reaper.sweep(now, leases_too=asks)
        if asks:
            self._judge(now, is_any_live=is_any_live)
            self._due_poll.end(again_in=0.0 if is_any_live else None)
        if self._due.is_due("sessions", SESSIONS_SECONDS, now):
            attending.end_abandoned(self._runtime.database)
        # Not Celery beat: this needs no broker, and leader election already limits it to one coordinator.
        if self._due.is_due("housekeeping", HOUSEKEEPING_SECONDS, now):
            self._keep_house()
        return self._poll_seconds if is_any_live else IDLE_SECONDS

    def _judge(self, now: float, *, is_any_live: bool) -> None:
        """Without running attempts no budget is exceeded, and a node is blamed only after a change."""
        database, settings = self._runtime.database, self._runtime.settings
        if is_any_live and self._due.is_due("budgets", BUDGET_SECONDS, now):
            gpu_budgets.requeue_over_budget(database, actor=self._name, nudge=self._runtime.dispatcher.nudge)
        if not is_any_live or self._due.is_due("quarantine", QUARANTINE_SECONDS, now):
            quarantine.evaluate(database, quarantine.rule_of(settings), actor=self._name)

    def _keep_house(self) -> None:
        database, settings = self._runtime.database, self._runtime.settings
        housekeeping.drop_old_replies(database)
        housekeeping.drop_dead_coordinators(database)
        inspections.drop_old(database)
        quarantine.drop_old(database, quarantine.rule_of(settings))
        device_usage.drop_old(database)
        deliveries.drop_old(database, kept_days=settings.webhook.kept_days)
        web_sessions.drop_ended(database, web_sessions.lifetime(settings))
