"""Tells projects' receivers what happened to their jobs: each in a thread of its own, so that none waits for another.

Every coordinator delivers; who tells which receiver is settled by turns in the database.
"""

import logging
import threading
import time
from collections import Counter

from app.services.webhooks.delivery_queue import Due
from app.services.webhooks.sender import WebhookSender
from tasks.background.loop import Loop
from tasks.celery_app import Runtime

# One project's slow receivers must leave threads for the others.
SHARE_OF_A_PROJECT = 4
# A receiver with much to come lets others have its thread after this long.
TURN_SECONDS = 5.0
LEAVE_SECONDS = 1.0

logger = logging.getLogger(__name__)


class Deliverer:
    """Looks for webhooks with something due and delivers, a bounded number at a time."""

    def __init__(self, runtime: Runtime) -> None:
        settings = runtime.settings
        self._sender = WebhookSender(runtime.database, settings)
        self._limit = settings.webhook.threads
        self._running: dict[str, tuple[Due, threading.Thread]] = {}
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        self._loop = Loop("webhooks", self._look, settings.scheduler.poll_seconds)

    def start(self) -> None:
        self._loop.start()

    def stop(self) -> None:
        """A try that is under way is left to itself: it is repeated unless its end is still written down."""
        self._stopping.set()
        self._loop.stop()

    def join(self) -> None:
        self._loop.join()
        until = time.monotonic() + LEAVE_SECONDS
        for _, thread in list(self._running.values()):
            thread.join(max(0.0, until - time.monotonic()))

    def _look(self) -> None:
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
            thread.start()  # first: a machine without room for another thread must not count it as running for ever
            self._running[due.webhook_id] = (due, thread)

    def _deliver(self, due: Due) -> None:
        try:
            went_on = self._send(due)
        finally:
            with self._lock:
                del self._running[due.webhook_id]
        if went_on:
            self._loop.wake()

    def _send(self, due: Due) -> bool:
        until = time.monotonic() + TURN_SECONDS
        try:
            self._sender.deliver(due, go_on=lambda: time.monotonic() < until and not self._stopping.is_set())
        except Exception:
            # Its turn is over after a while, and what was under way is sent again.
            logger.exception("delivering to the webhook %s goes wrong and is tried again", due.webhook_id)
            return False
        return True
