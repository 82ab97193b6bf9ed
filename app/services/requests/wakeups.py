"""Wake-ups over the broker, sent by a thread of their own: whoever rings never waits and never fails.

Nothing depends on a wake-up. Everybody who is meant by one also polls the database, so a lost one costs a poll.
"""

import logging
import os
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from app.domain.routing import admission_queue, broker_priority, dispatch_queue
from config.queues import MESSAGE_EXPIRES_SECONDS, NODE, celery_config, worker_hostname
from config.settings import Settings

ADMIT = "trainyard.admit"
RUN = "trainyard.run"
NUDGE = "nudge"
GATHERED = frozenset({ADMIT, RUN})  # their messages take any number of arguments

WAITING_LIMIT = 1000
# What could not be sent for this long is no news any more: those it was meant for have looked by themselves.
STALE_SECONDS = 5.0
REST_AFTER_FAILURE_SECONDS = 1.0
# The first of many submissions is told of at once, those that come in this time after it together, up to so many.
GATHER_SECONDS = 0.05
MOST_TOGETHER = 50
CLOSE_SECONDS = 1.0

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Message:
    """A task to send by name, or with ``node`` a control command to one worker."""

    name: str
    arguments: tuple[Any, ...]
    queue: str = ""
    priority: int = 0
    node: str = ""

    @property
    def way(self) -> tuple[str, str, int]:
        """Messages that differ only in what they tell have the same."""
        return self.name, self.queue, self.priority


class _Waiting(NamedTuple):
    rung_at: float
    message: Message


Publish = Callable[[Message], None]


class Dispatcher:
    """Connects on first use, in a thread of the process that rings: safe to make before a fork."""

    def __init__(self, settings: Settings, *, connect: Callable[[Settings], Publish] | None = None) -> None:
        self._settings = settings
        self._connect = connect or connect_broker
        self._publish: Publish | None = None
        self._thread: threading.Thread | None = None
        self._start_afresh()
        # Threads, and locks that they held, stay behind in the process that forks.
        start_afresh = weakref.WeakMethod(self._start_afresh)
        os.register_at_fork(after_in_child=lambda: (method := start_afresh()) and method())

    def ring_admit(self, job_id: str, queue: str, priority: int) -> None:
        """A job was submitted to the queue."""
        self._ring(Message(ADMIT, (job_id,), admission_queue(queue), broker_priority(priority)))

    def ring_run(self, attempts: Sequence[tuple[str, int]], node: str, device_type: str, priority: int) -> None:
        """Attempts (job, number) wait for the node to take them up."""
        self._ring(Message(RUN, tuple(attempts), dispatch_queue(device_type, node), broker_priority(priority)))

    def nudge(self, job_id: str, node: str) -> None:
        """Somebody changed what they want of a job that the node runs."""
        self._ring(Message(NUDGE, (job_id,), node=node))

    def close(self) -> None:
        """Send what waits, for at most a second."""
        with self._condition:
            self._closed.set()
            self._condition.notify_all()
            thread = self._thread
        if thread is not None:
            thread.join(CLOSE_SECONDS)

    def _ring(self, message: Message) -> None:
        with self._condition:
            if self._closed.is_set():
                return
            self._waiting.append(_Waiting(time.monotonic(), message))
            if self._thread is None:
                self._thread = threading.Thread(target=self._serve, name="dispatcher", daemon=True)
                self._thread.start()
            self._condition.notify_all()

    def _start_afresh(self) -> None:
        self._condition = threading.Condition()
        self._waiting: deque[_Waiting] = deque(maxlen=WAITING_LIMIT)  # a full one forgets the oldest
        self._publish = None
        self._thread = None
        self._failing = False
        self._closed = threading.Event()

    def _serve(self) -> None:
        while (waiting := self._next()) is not None:
            if time.monotonic() - waiting.rung_at > STALE_SECONDS:
                continue
            message = self._together(waiting.message) if waiting.message.name in GATHERED else waiting.message
            # A connection that the broker dropped shows only when it is used: the second try has a new one.
            if not self._sent(message) and not self._sent(message):
                self._closed.wait(REST_AFTER_FAILURE_SECONDS)
            elif message.name == ADMIT:
                self._closed.wait(GATHER_SECONDS)

    def _sent(self, message: Message) -> bool:
        try:
            if self._publish is None:
                self._publish = self._connect(self._settings)
            self._publish(message)
        except Exception as error:  # noqa: BLE001  whatever the broker or its library does, the thread goes on
            if self._publish is not None and not self._failing:
                logger.info("the broker did not take a message: %s", error)
            self._publish, self._failing = None, True
            return False
        self._failing = False
        return True

    def _next(self) -> _Waiting | None:
        with self._condition:
            while not self._waiting:
                if self._closed.is_set():
                    return None
                self._condition.wait()
            return self._waiting.popleft()

    def _together(self, message: Message) -> Message:
        """The message with what those behind it tell that go the same way."""
        arguments = message.arguments
        with self._condition:
            for waiting in [waiting for waiting in self._waiting if waiting.message.way == message.way]:
                if len(arguments) + len(waiting.message.arguments) > MOST_TOGETHER:
                    break
                self._waiting.remove(waiting)
                arguments += waiting.message.arguments
        return replace(message, arguments=arguments)


def connect_broker(settings: Settings) -> Publish:
    """A function that sends messages with Celery. It connects when it is first called."""
    # Here, not above: the API must be ready before it has anything to send, and Celery takes a while to import.
    from celery import Celery  # noqa: PLC0415

    celery = Celery("trainyard", set_as_current=False)
    celery.conf.update(celery_config(settings, publisher=True))
    queues = celery.amqp.queues

    def publish(message: Message) -> None:
        if message.node:
            destination = [worker_hostname(NODE, message.node)]
            celery.control.broadcast(message.name, arguments={"job_id": message.arguments[0]}, destination=destination)
            return
        if message.queue not in queues:
            queues.add(message.queue)
        celery.send_task(
            message.name,
            args=message.arguments,
            queue=message.queue,
            priority=message.priority,
            expires=MESSAGE_EXPIRES_SECONDS,
            ignore_result=True,
        )

    return publish
