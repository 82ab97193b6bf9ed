"""Wake-ups over the broker, sent by a dedicated thread: callers never wait and never fail.

Nothing depends on a wake-up: its receivers also poll the database, so a lost one costs a poll interval.
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
# Messages older than this are dropped: their receivers have polled meanwhile.
STALE_SECONDS = 5.0
REST_AFTER_FAILURE_SECONDS = 1.0
# The first of many submissions is announced at once; those within this time after it are batched, up to MOST_TOGETHER.
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
    def routing_key(self) -> tuple[str, str, int]:
        """Routing key: messages with the same key can be merged."""
        return self.name, self.queue, self.priority


class _Waiting(NamedTuple):
    created_at: float
    message: Message


Publish = Callable[[Message], None]


class Dispatcher:
    """Connects on first use, in a thread of the calling process; safe to create before a fork."""

    def __init__(self, settings: Settings, *, connect: Callable[[Settings], Publish] | None = None) -> None:
        self._settings = settings
        self._connect = connect or connect_broker
        self._publish: Publish | None = None
        self._thread: threading.Thread | None = None
        self._reset()
        # Threads, and locks that they hold, don't survive a fork.
        reset = weakref.WeakMethod(self._reset)
        os.register_at_fork(after_in_child=lambda: (method := reset()) and method())

    def ring_admit(self, job_id: str, queue: str, priority: int) -> None:
        """Announce a submitted job."""
        self._ring(Message(ADMIT, (job_id,), admission_queue(queue), broker_priority(priority)))

    def ring_run(self, attempts: Sequence[tuple[str, int]], node: str, device_type: str, priority: int) -> None:
        """Announce attempts (job, number) to the node that is to claim them."""
        self._ring(Message(RUN, tuple(attempts), dispatch_queue(device_type, node), broker_priority(priority)))

    def nudge(self, job_id: str, node: str) -> None:
        """Announce a control request for a job on the node."""
        self._ring(Message(NUDGE, (job_id,), node=node))

    def close(self) -> None:
        """Send pending messages, for at most ``CLOSE_SECONDS``."""
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

    def _reset(self) -> None:
        self._condition = threading.Condition()
        self._waiting: deque[_Waiting] = deque(maxlen=WAITING_LIMIT)  # when full it drops the oldest
        self._publish = None
        self._thread = None
        self._failing = False
        self._closed = threading.Event()

    def _serve(self) -> None:
        while (waiting := self._next()) is not None:
            if time.monotonic() - waiting.created_at > STALE_SECONDS:
                continue
            message = self._merged(waiting.message) if waiting.message.name in GATHERED else waiting.message
            # A dropped connection is noticed only when it is used: the second try opens a new one.
            if not self._sent(message) and not self._sent(message):
                self._closed.wait(REST_AFTER_FAILURE_SECONDS)
            elif message.name == ADMIT:
                self._closed.wait(GATHER_SECONDS)

    def _sent(self, message: Message) -> bool:
        try:
            if self._publish is None:
                self._publish = self._connect(self._settings)
            self._publish(message)
        except Exception as error:  # noqa: BLE001  the thread must survive any error of the broker or its library
            if self._publish is not None and not self._failing:
                logger.info("the broker did not accept a message: %s", error)
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

    def _merged(self, message: Message) -> Message:
        """Merge the message with pending ones of the same routing key."""
        arguments = message.arguments
        with self._condition:
            for waiting in [waiting for waiting in self._waiting if waiting.message.routing_key == message.routing_key]:
                if len(arguments) + len(waiting.message.arguments) > MOST_TOGETHER:
                    break
                self._waiting.remove(waiting)
                arguments += waiting.message.arguments
        return replace(message, arguments=arguments)


def connect_broker(settings: Settings) -> Publish:
    """A function that sends messages with Celery, connecting on its first call."""
    # Imported late: Celery is slow to import, and the API must be ready before its first message.
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
