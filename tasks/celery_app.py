"""Builds the Celery application from settings, with the runtime objects its tasks need."""

import logging
import os
import signal
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import FrameType
from typing import Any, NamedTuple

from celery import Celery, signals
from celery.exceptions import SecurityWarning

from app.database.engine import Database
from app.database.from_settings import open_database
from app.services.nodes.capacity import ClusterInventory
from app.services.requests.wakeups import Dispatcher
from config.logging import configure_logging, log_crashes
from config.queues import POOL_THREADS, celery_config
from config.redaction import Redaction
from config.secrets import secrets_of
from config.settings import Settings
from tasks import checked_transport

HEARTBEAT_SECONDS = 10
# Celery sends a farewell to the broker when it ends, and a hanging broker would block it. Process managers must wait
# longer than this before SIGKILL.
SHUTDOWN_SECONDS = 6

logger = logging.getLogger(__name__)


class SubmittedJob(NamedTuple):
    """A job that a loop of this process has submitted."""

    job_id: str
    queue: str
    priority: int


@dataclass
class Runtime:
    """Objects shared by tasks, control commands and bootsteps of a process, as ``app.runtime``.

    Bootsteps set the callbacks. They are called on other threads and must return at once.
    """

    settings: Settings
    database: Database
    dispatcher: Dispatcher
    inventory: ClusterInventory = field(default_factory=ClusterInventory)
    # called with jobs that were submitted here
    on_submitted: Callable[[Sequence[SubmittedJob]], None] = field(default=lambda _jobs: None)
    on_admitted: Callable[[str], None] = field(default=lambda _job_id: None)  # called when a job was admitted here
    # called when a job's control requests changed
    on_nudge: Callable[[str], None] = field(default=lambda _job_id: None)

    def close(self) -> None:
        self.dispatcher.close()
        self.database.close()


def build_app(settings: Settings) -> Celery:
    """A Celery application; nothing connects yet. The caller imports the tasks and adds the bootsteps it needs."""
    celery = Celery("trainyard")
    celery.conf.update(celery_config(settings))
    signals.celeryd_init.connect(checked_transport.install)
    celery.runtime = Runtime(settings, open_database(settings.database), Dispatcher(settings))
    return celery


def run_worker(celery: Celery, *, hostname: str, process: str) -> int:
    """Run a worker until it is stopped; returns the exit code.

    Uses Celery's worker class instead of its command, which imports the whole command line and takes 0.4 s.
    """
    settings: Settings = celery.runtime.settings
    configure_logging(settings.log.level, process=process, redaction=Redaction(secrets_of(settings)))
    log_crashes()
    # Only JSON is accepted, so running as root is no deserialization risk; it is common in containers.
    warnings.filterwarnings("ignore", category=SecurityWarning)
    # A receiver of this signal tells Celery that logging is configured, so Celery leaves it alone.
    signals.setup_logging.connect(_logging_is_configured)
    signals.worker_shutting_down.connect(_limit_shutdown)
    worker: Any = celery.Worker(
        hostname=hostname,
        pool_cls="threads",
        concurrency=POOL_THREADS,
        loglevel=settings.log.level,
        quiet=True,
        task_events=True,
        without_gossip=True,
        without_mingle=True,
        heartbeat_interval=HEARTBEAT_SECONDS,
    )
    try:
        worker.start()
    finally:
        celery.runtime.close()
    return int(worker.exitcode or 0)


def _logging_is_configured(**_: Any) -> None:
    pass


def _limit_shutdown(**_: Any) -> None:
    # Threads must not be started in a signal handler; an alarm suffices.
    signal.signal(signal.SIGALRM, _leave)
    signal.alarm(SHUTDOWN_SECONDS)


def _leave(_number: int, _frame: FrameType | None) -> None:
    # No data is lost: tasks are done or redelivered, and open transactions roll back.
    os.write(2, b"the broker does not let us end in time; ending without it\n")
    os._exit(1)
