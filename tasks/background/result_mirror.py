"""Mirrors jobs to Celery's interfaces: states in the result backend and task events for Flower, both under the job's
id.

Level-triggered: what could not be mirrored stays due in the database. Nothing here is ever read to make a decision.
"""

import logging
import secrets
from collections.abc import Iterator, Sequence
from typing import Any

from celery import Celery, states

from app.services.jobs import result_mirror
from app.services.jobs.result_mirror import MirroredJob
from config.queues import COORDINATOR, NODE, worker_hostname

PROGRESS_SECONDS = 2.0
EVENT_SECONDS = 30.0
CHECK_LOSS_SECONDS = 5.0
# In one message, as Celery's own workers send them.
EVENTS_TOGETHER = 50
# Its absence means that the backend has lost everything: a restart without data, or FLUSHALL.
MARKER = "trainyard:mirror"

# Final job state → Celery state. `AsyncResult` knows no other final states: without them `get()` would block forever.
CELERY_STATES = {
    "COMPLETED": states.SUCCESS,
    "FAILED": states.FAILURE,
    "CANCELLED": states.REVOKED,
    "PREEMPTED": states.REVOKED,
}
# Flower's events. An unknown state outranks Celery's REVOKED there, so cancelled jobs keep their own state.
EVENTS = {"COMPLETED": "task-succeeded"}
STARTED_STATES = frozenset({"PREPARING", "TRAINING", "CHECKPOINTING", "EVALUATING", "SERVING", "EXPORTING"})

logger = logging.getLogger(__name__)


class ResultMirror:
    """Used by one thread of the leading coordinator. Broker and database errors propagate to its loop."""

    def __init__(self, celery: Celery) -> None:
        self._celery = celery
        self._db = celery.runtime.database
        self._sender: Any = None
        self._token = secrets.token_hex(8)
        self._loss_checked_at: float | None = None
        self._progress_at = 0.0
        self._shown: dict[str, dict[str, Any]] = {}  # running jobs: last mirrored values
        self._events_at: dict[str, float] = {}
        self._started: dict[str, int] = {}  # running job → attempt whose start was sent to Flower

    def notice_loss(self, now_seconds: float) -> bool:
        """Every five seconds: whether the backend has lost everything, so that every job is to be mirrored again."""
        if self._loss_checked_at is not None and now_seconds - self._loss_checked_at < CHECK_LOSS_SECONDS:
            return False
        client = self._celery.backend.client
        is_lost = not client.exists(MARKER)
        if is_lost:
            logger.info("the result backend is empty; mirroring every job again")
            result_mirror.forget_mirrored(self._db)
            self._shown.clear()
            client.set(MARKER, self._token)  # last: a reset that has failed is tried again, also by the next leader
        self._loss_checked_at = now_seconds
        return is_lost

    def show_changes(self, now_seconds: float) -> float | None:
        """Mirror every changed job, and every two seconds the progress of running ones.

        Returns the seconds until progress is due; None while no job runs.
        """
        try:
            self.notice_loss(now_seconds)
            while images := result_mirror.changed(self._db):
                self._store(images)
                for image in images:
                    self._send(image, now_seconds)
                self._flush()
                result_mirror.mark_mirrored(self._db, images)
                if len(images) < result_mirror.BATCH:
                    break  # jobs that change from now on wait for the next pass: most change again within moments
            if now_seconds - self._progress_at >= PROGRESS_SECONDS:
                self._progress_at = now_seconds
                self._show_progress(now_seconds)
                self._flush()
        except Exception:
            self._disconnect()
            raise
        return self._progress_at + PROGRESS_SECONDS - now_seconds if self._shown else None

    def _show_progress(self, now_seconds: float) -> None:
        running = result_mirror.running(self._db)
        self._store([image for image in running if self._shown.get(image.job_id) != image.details])
        for image in running:
            if now_seconds - self._events_at.get(image.job_id, 0.0) >= EVENT_SECONDS:
                self._send(image, now_seconds)
        alive = {image.job_id for image in running}
        for memory in (self._shown, self._events_at, self._started):
            for job_id in memory.keys() - alive:
                del memory[job_id]

    def _store(self, images: Sequence[MirroredJob]) -> None:
        """What `Backend.store_result` does for one job, in two round trips; the state of an ended job is final."""
        backend = self._celery.backend
        with backend.client.pipeline(transaction=False) as pipe:
            for image in images:
                key, value = backend.get_key_for_task(image.job_id), backend.encode(result_of(image))
                pipe.set(key, value, ex=backend.expires)
                pipe.publish(key, value)
            pipe.execute()
        self._shown.update((image.job_id, image.details) for image in images)

    def _send(self, image: MirroredJob, now_seconds: float) -> None:
        if self._sender is None:
            connection = self._celery.connection_for_write()
            self._sender = self._celery.events.Dispatcher(
                connection, buffer_while_offline=False, buffer_group={"task"}, buffer_limit=EVENTS_TOGETHER
            )
        # Flower files a task under the worker that sends its events.
        self._sender.hostname = (
            worker_hostname(NODE, image.node) if image.node else worker_hostname(COORDINATOR, "queue")
        )
        for kind in self._kinds(image):
            self._sender.send(kind, **event_fields(image))
        self._events_at[image.job_id] = now_seconds

    def _flush(self) -> None:
        if self._sender is not None:
            self._sender.flush()

    def _kinds(self, image: MirroredJob) -> Iterator[str]:
        if image.is_first:
            yield "task-received"
        if image.state in STARTED_STATES and self._started.get(image.job_id) != image.attempt:
            self._started[image.job_id] = image.attempt
            yield "task-started"
        # Celery reads task-failed as its own FAILURE. States that it does not know outrank all known ones except
        # SUCCESS and FAILURE, so a job's end is shown whatever came before.
        yield EVENTS.get(image.state, f"task-{image.state.lower()}")

    def _disconnect(self) -> None:
        sender, self._sender = self._sender, None
        self._loss_checked_at = None
        self._started.clear()  # queued events may not have reached Flower; sending them twice is harmless
        if sender is not None:
            sender.close()
            sender.connection.release()


def result_of(image: MirroredJob) -> dict[str, Any]:
    """The document that Celery's result backends store and `AsyncResult` reads.

    For an ended job `result` is its report, or the error that `get()` raises; otherwise its progress.
    """
    return {
        "task_id": image.job_id,
        "status": CELERY_STATES.get(image.state, image.state),
        "result": _outcome(image),
        "traceback": image.error_stack if image.state == "FAILED" else None,
        "children": None,
        "date_done": image.finished_at.isoformat() if image.finished_at is not None else None,
    }


def _outcome(image: MirroredJob) -> dict[str, Any]:
    match CELERY_STATES.get(image.state):
        case states.SUCCESS:
            return dict(image.report or {})
        case states.FAILURE:
            kind, message = image.details["error_type"] or "FAILED", image.details["error_message"] or ""
            return {"exc_type": kind, "exc_message": [message], "exc_module": None}
        case states.REVOKED:
            message = f"job {image.job_id} was {image.state}"
            return {"exc_type": "TaskRevokedError", "exc_message": [message], "exc_module": "celery.exceptions"}
    return image.details


def event_fields(image: MirroredJob) -> dict[str, Any]:
    """Complete fields in every event: Flower may have started after the job."""
    details = image.details
    shown = {name: details[name] for name in ("progress", "step", "total_steps", "attempt", "node_names", "queue")}
    fields: dict[str, Any] = {"uuid": image.job_id, "name": image.label, "args": f"({image.job_id!r},)", "retries": 0}
    fields["kwargs"] = repr(shown)
    if image.state in CELERY_STATES:
        fields["runtime"] = image.elapsed_seconds
    if image.state == "COMPLETED":
        fields["result"] = repr(image.report)
    if details["error_message"]:
        fields["exception"] = f"{details['error_type']}: {details['error_message']}"
    return fields
