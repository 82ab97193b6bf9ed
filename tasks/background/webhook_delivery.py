"""Delivers job events to projects' webhooks, each in a thread of its own, so that slow receivers do not delay others.

Every coordinator delivers; time-limited claims in the database decide which coordinator serves which webhook.
"""

import logging
import threading
import time
from collections import Counter

from app.services.webhooks.delivery_queue import Due
from app.services.webhooks.sender import WebhookSender
from tasks.background.changes import Poll
from tasks.background.loop import Loop
from tasks.celery_app import Runtime

# One project's slow receivers must leave threads for other projects.
SHARE_OF_A_PROJECT = 4
# After this long, a receiver with a backlog releases its thread.
BATCH_SECONDS = 5.0
STOP_GRACE_SECONDS = 1.0

logger = logging.getLogger(__name__)


class WebhookDeliverer:
    """Finds webhooks with due deliveries and sends them, a bounded number at a time."""

    def __init__(self, runtime: Runtime) -> None:
        settings = runtime.settings
        self._sender = WebhookSender(runtime.database, settings)
        self._limit = settings.webhook.threads
        self._running: dict[str, tuple[Due, threading.Thread]] = {}
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        self._poll_seconds = settings.scheduler.poll_seconds
        self._due_poll = Poll()
        self._loop = Loop("webhooks", self._poll, self._poll_seconds)

    def start(self) -> None:
        self._loop.start()

    def wake(self) -> None:
        self._due_poll.expect()
        self._loop.wake()

    def stop(self) -> None:
        """Does not wait for a delivery in progress: it is repeated unless its end is still recorded."""
        self._stopping.set()
        self._loop.stop()

    def join(self) -> None:
        self._loop.join()
        until = time.monotonic() + STOP_GRACE_SECONDS
        for _, thread in list(self._running.values()):
            thread.join(max(0.0, until - time.monotonic()))

    def _poll(self) -> float:
        if self._due_poll.begin():
            self._begin_due()
            # Waiting deliveries become due by the database's clock.
            self._due_poll.end(again_in=self._poll_seconds if self._sender.any_waiting() else None)
        return self._due_poll.rest_seconds

    def _begin_due(self) -> None:
        with self._lock:
            running = [due for due, _ in self._running.values()]
        free = self._limit - len(running)
        if free <= 0:
            return
        share = max(1, self._limit // SHARE_OF_A_PROJECT)
        projects = Counter(due.project for due in running)
        full = [project for project, count in projects.items() if count >= share]
        found = self._sender.due(besides=[due.webhook_id for due in running], besides_projects=full, limit=free)
        for due in found:
            if projects[due.project] < share and not self._stopping.is_set():
                projects[due.project] += 1
                self._begin(due)

    def _begin(self, due: Due) -> None:
        thread = threading.Thread(target=self._deliver, args=(due,), name=f"webhook-{due.webhook_id}", daemon=True)
        with self._lock:
            thread.start()  # first: if no thread can be started, the webhook must not stay marked as running
            self._running[due.webhook_id] = (due, thread)

    def _deliver(self, due: Due) -> None:
        try:
            went_on = self._send(due)
        finally:
            with self._lock:
                del self._running[due.webhook_id]
        if went_on:
            self.wake()

    def _send(self, due: Due) -> bool:
        until = time.monotonic() + BATCH_SECONDS
        try:
            self._sender.deliver(due, go_on=lambda: time.monotonic() < until and not self._stopping.is_set())
        except Exception:
            # The claim expires, and the unfinished delivery is sent again.
            logger.exception("delivery to webhook %s failed and will be retried", due.webhook_id)
            return False
        return True
