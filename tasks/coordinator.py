"""The coordinator process: `python -m tasks.coordinator`, or `celery -A tasks.coordinator worker -P threads`."""

import secrets
import sys
from typing import Any

from celery import Celery, bootsteps
from celery.worker import WorkController

from app.host.privacy import hide_from_same_user
from config.queues import COORDINATOR, DEFAULT_ADMISSION_QUEUE, consume_only, coordinator_prefix
from config.settings import Settings, load_settings
from tasks import admission, control
from tasks.background.coordination import Coordination
from tasks.celery_app import build_app, run_worker

__all__ = ["admission", "control", "make_app"]


class CoordinatorStep(bootsteps.StartStopStep):
    """Starts everything that needs no broker before Celery's consumer, which blocks until a broker is available."""

    def __init__(self, worker: WorkController, **options: Any) -> None:
        super().__init__(worker, **options)
        self._coordination = Coordination(worker.app, worker.hostname, consume=lambda name: _consume(worker, name))

    def start(self, worker: WorkController) -> None:
        del worker
        self._coordination.start()

    def stop(self, worker: WorkController) -> None:
        del worker
        self._coordination.stop()

    terminate = stop


def _consume(worker: WorkController, queue: str) -> None:
    """Also consume this queue; safe from any thread."""
    worker.app.amqp.queues.select_add(queue)  # for the next connection
    consumer = worker.consumer

    def add() -> None:
        if consumer.task_consumer is not None:  # connected
            consumer.add_task_queue(queue)

    consumer.call_soon(add)


def make_app(settings: Settings) -> Celery:
    celery = build_app(settings)
    celery.steps["worker"].add(CoordinatorStep)
    consume_only(celery.amqp.queues, [DEFAULT_ADMISSION_QUEUE])
    return celery


def own_hostname() -> str:
    """A unique worker name: several coordinators may run on one machine."""
    return coordinator_prefix() + secrets.token_hex(3)


app = make_app(load_settings())


def main() -> int:
    hide_from_same_user()
    return run_worker(app, hostname=own_hostname(), process=COORDINATOR)


if __name__ == "__main__":
    sys.exit(main())
