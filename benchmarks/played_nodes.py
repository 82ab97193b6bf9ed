"""Many nodes played by one process: real registrations, heartbeats, consumers and claims; nothing is trained.

Each node has a channel of its own, which waits at the broker for the queues of this node and no others, as its worker's
would: on one channel each message would have the queues of all of them asked for anew, 640 keys with their priorities.

    python -m benchmarks.played_nodes NODES SLOTS [SECONDS]

Configured by the same variables as a node worker. With 0 nodes it serves the reference instead: a task that does
nothing, on a queue of the same broker. With SECONDS a claimed attempt trains for so long: it writes what a supervisor
writes, reports a loss, and completes. Prints ``ready`` when it consumes.
"""

import sys
import threading
import time
from typing import Any

from celery import Task, bootsteps, signals
from celery.worker.consumer import Consumer as WorkerConsumer
from kombu.messaging import Consumer

from app.database.engine import Database
from app.domain.lifecycle.outcomes import Outcome
from app.domain.lifecycle.retry_policy import Backoff
from app.domain.lifecycle.states import JobState
from app.domain.routing import dispatch_queue
from app.domain.scheduling.resources import Device
from app.host.processes import place
from app.models.base import utc_now
from app.services.attempts import work_orders
from app.services.nodes import registry
from app.services.nodes.registry import NodeReport
from app.services.requests import wakeups
from app.services.telemetry import stored_metrics
from app.services.telemetry.stored_metrics import MetricValue, TelemetryReports
from config.queues import POOL_THREADS, consume_only
from config.settings import Settings, load_settings
from tasks.background.loop import Loop
from tasks.celery_app import Runtime, build_app, run_worker
from workers.node import spawn_supervisor
from workers.node.spawn_supervisor import Spawn

NOTHING, NOTHING_QUEUE = "benchmark.nothing", "benchmark"
MOST_CONNECTIONS = 50  # of a worker; each channel that waits has one
_NO_RETRY = Backoff(base_seconds=0.0, max_seconds=0.0)


def main(count: int, slots: int, seconds: float | None) -> int:
    settings = load_settings()
    celery = build_app(settings)
    runtime: Runtime = celery.runtime
    names = [f"played-{number:03}" for number in range(count)]
    trains = _trainer(runtime.database, seconds) if seconds is not None else lambda *_: 0

    def run(self: Task, *attempts: tuple[str, int]) -> None:
        node = self.request.delivery_info["routing_key"].partition(".")[2]
        spawn_supervisor.start_attempts(
            settings,
            runtime.database,
            [(job, number) for job, number in attempts],
            node=node,
            spawn=trains,  # all that a node worker does, up to here
        )

    def nothing(*_: tuple[str, int]) -> None:
        pass

    def beat() -> None:
        for name in names:
            registry.heartbeat(runtime.database, name)

    celery.task(run, name=wakeups.RUN, bind=True, send_events=False)
    celery.task(nothing, name=NOTHING, send_events=False)
    for name in names:
        registry.register(runtime.database, _report(name, slots))
    consume_only(celery.amqp.queues, [NOTHING_QUEUE])
    for name in names:
        celery.amqp.queues.add(dispatch_queue("cpu", name))
    celery.conf.broker_transport_options = {
        **celery.conf.broker_transport_options,
        "max_connections": MOST_CONNECTIONS + count,
    }
    step = {"requires": ("celery.worker.consumer.tasks:Tasks",), "start": lambda _, worker: _consume(worker, names)}
    celery.steps["consumer"].add(type("Consumers", (bootsteps.StartStopStep,), step))
    signals.worker_ready.connect(lambda **_: print("ready", flush=True), weak=False)
    heart = Loop("heart", beat, settings.node.heartbeat_seconds * 5)
    heart.start()
    try:
        return run_worker(celery, hostname="played@here", process="played")
    finally:
        heart.stop()


def _trainer(db: Database, seconds: float) -> Spawn:
    """In place of the start of a supervisor: a thread that writes what one writes."""

    def start(_settings: Settings, job_id: str, attempt: int) -> int:
        threading.Thread(target=_train, args=(db, job_id, attempt, seconds), daemon=True).start()
        return 0

    return start


def _train(db: Database, job_id: str, attempt: int, seconds: float) -> None:
    ends = time.monotonic() + seconds
    work = work_orders.load_work(db, job_id, attempt)
    work_orders.enter_phase(db, work, JobState.TRAINING, start_step=0)
    time.sleep(max(0.0, ends - time.monotonic()))
    loss = (float(work.document.training_config.environment["X"]) - 1) ** 2
    point = MetricValue(name="loss", step=1, at=utc_now(), value=loss)
    stored_metrics.store(db, job_id=job_id, attempt=attempt, fence=work.fence, reports=TelemetryReports(points=[point]))
    work_orders.finish(db, work, Outcome(kind="completed", end_step=1, ran_seconds=seconds), _NO_RETRY)


def _consume(consumer: WorkerConsumer, names: list[str]) -> None:
    """For each of the nodes, beside what the worker consumes itself."""
    take = consumer.create_task_handler()
    make: Any = Consumer  # which has no types
    for name in names:
        queue = consumer.app.amqp.queues[dispatch_queue("cpu", name)]
        own = make(consumer.connection.channel(), [queue], accept=["json"], on_message=take)
        own.qos(prefetch_count=POOL_THREADS)
        own.consume()


def _report(name: str, slots: int) -> NodeReport:
    return NodeReport(
        name=name,
        devices=tuple(Device(index=i, type="cpu") for i in range(slots)),
        cpu_cores=slots,
        ram_mb=64_000,
        storage_mb=1_000_000,
        sandbox="bubblewrap",
        version="benchmark",
        boot_id=place(),
    )


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]) if len(sys.argv) > 3 else None))
