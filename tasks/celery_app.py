"""The Celery application of our processes: configured from settings, with what its tasks need hung on it."""

import logging
import os
import signal
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from celery import Celery, signals
from celery.exceptions import SecurityWarning

from app.database.engine import Database
from app.database.from_settings import open_database
from app.services.requests.wakeups import Dispatcher
from config.logging import configure_logging, log_crashes
from config.queues import POOL_THREADS, celery_config
from config.redaction import Redaction
from config.secrets import secrets_of
from config.settings import Settings

HEARTBEAT_SECONDS = 10
# Celery says good-bye to the broker when it ends, and a broker that hangs would keep it. Whoever starts us kills us
# only after more than this.
SHUTDOWN_SECONDS = 6

logger = logging.getLogger(__name__)


@dataclass
class Runtime:
    """What tasks, control commands and bootsteps of a process share, as ``app.runtime``.

    Bootsteps hang their callbacks in: both are called from Celery's own thread and must return at once.
    """

    settings: Settings
    database: Database
    dispatcher: Dispatcher
    on_admitted: Callable[[str], None] = field(default=lambda _job_id: None)  # a job was admitted here
    on_nudge: Callable[[str], None] = field(default=lambda _job_id: None)  # wishes about a job changed

    def close(self) -> None:
        self.dispatcher.close()
        self.database.close()


def build_app(settings: Settings) -> Celery:
    """A Celery application; nothing connects yet. The caller imports the tasks and adds the bootsteps it wants."""
    celery = Celery("trainyard")
    celery.conf.update(celery_config(settings))
    celery.runtime = Runtime(settings, open_database(settings.database), Dispatcher(settings))
    return celery


def run_worker(celery: Celery, *, hostname: str, process: str) -> int:
    """Be a worker until somebody ends it; returns the exit code.

    By Celery's own worker class, not its command: that imports the whole command line, which takes 0.4 s.
    """
    settings: Settings = celery.runtime.settings
    configure_logging(settings.log.level, process=process, redaction=Redaction(secrets_of(settings)))
    log_crashes()
    # Nothing but JSON is accepted, so root can be talked into nothing; in a container it is usual.
    warnings.filterwarnings("ignore", category=SecurityWarning)
    # Whoever listens to this signal has configured logging, and Celery leaves it alone.
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
    # This runs inside a signal handler, where no thread may be started; an alarm is all it takes.
    signal.signal(signal.SIGALRM, _leave)
    signal.alarm(SHUTDOWN_SECONDS)


def _leave(_number: int, _frame: Any) -> None:
    # Nothing is lost: tasks are done or come back, and transactions that are open now never happened.
    os.write(2, b"the broker does not let us end in time; ending without it\n")
    os._exit(1)
