"""From a line of queued jobs to claims: how many per second are planned, announced, consumed and claimed (B7).

    python -m benchmarks.dispatch [--jobs 1000] [--nodes 64] [--rounds 3] [--databases sqlite,postgresql]

A real coordinator, a real broker, and one process that plays the nodes: registered, with heartbeats, consuming their
queues and claiming what they are told of, but training nothing. The jobs wait in a paused queue; the time runs from its
opening to the last claim. By turns with it the same broker and the same kind of worker take as many messages for a task
that does nothing, sent one after the other by one process. Grows by the jobs: as many as ``--jobs``, twice and four
times. One JSON line on standard output, a table on standard error.
"""

import argparse
import json
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import delete, func, select, update

from app.cli.command_lines import child_environment
from app.domain.job_state import JobState
from app.extensions import Database
from app.models import Attempt, Job, JobEvent, Lease, Queue, Reservation
from app.services.bootstrap import prepare
from app.services.dispatch import Message, connect_broker
from app.services.opening import open_database
from benchmarks import servers
from benchmarks.machine import description
from benchmarks.played_nodes import NOTHING, NOTHING_QUEUE
from config.queues import COORDINATOR, worker_command
from config.settings import Settings, load_settings
from tests.factories import make_document, make_job

PER_SECOND, RATIO = 200.0, 0.3
GROWTH = (1, 2, 4)
SLOTS_FOR_ALL = 1.1
SECONDS = 300.0


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=1000)
    parser.add_argument("--nodes", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--databases", default="sqlite,postgresql")
    given = parser.parse_args(arguments)
    machine = description()
    figures = {kind: measured(kind, given) for kind in given.databases.split(",")}
    settings = {name: getattr(given, name) for name in ("jobs", "nodes", "rounds")}
    report = {"benchmark": "dispatch", **settings, "databases": figures, "machine": machine}
    print(table(report), file=sys.stderr)
    print(json.dumps(report))


def measured(kind: str, given: argparse.Namespace) -> list[dict[str, Any]]:
    """One entry for each number of jobs."""
    folder = Path(tempfile.mkdtemp(prefix="trainyard-dispatch-"))
    with ExitStack() as stack:
        stack.callback(shutil.rmtree, folder)
        broker = servers.started_broker(stack)
        (url,) = servers.databases(kind, folder, stack, ("trainyard",))
        settings = prepare(load_settings(_environment(folder, url, broker.url)))
        db = open_database(settings.database)
        stack.callback(db.close)
        stack.enter_context(_process(_playing(0, 0), settings, until="ready"))
        slots = int(given.jobs * GROWTH[-1] * SLOTS_FOR_ALL / given.nodes)
        stack.enter_context(_process(_playing(given.nodes, slots), settings, until="ready"))
        stack.enter_context(_process(worker_command(COORDINATOR), settings))
        with broker.client() as client:
            return [
                by_turns(db, settings, given.rounds, given.jobs * factor, lambda: int(client.llen(NOTHING_QUEUE)))
                for factor in GROWTH
            ]


def by_turns(db: Database, settings: Settings, rounds: int, jobs: int, left: Any) -> dict[str, Any]:
    ours, plain = [], []
    for _ in range(rounds):
        ours.append(jobs / dispatched(db, jobs))
        plain.append(jobs / served(settings, jobs, left))
    return {
        "jobs": jobs,
        "per_second": round(statistics.median(ours)),
        "plain_per_second": round(statistics.median(plain)),
        "ratio": round(statistics.median(a / b for a, b in zip(ours, plain, strict=True)), 2),
    }


def dispatched(db: Database, jobs: int) -> float:
    """Seconds from the opening of the queue to the last claim."""
    with db.write() as session:
        session.execute(update(Queue).values(is_paused=True))
        for table_ in (Reservation, Lease, Attempt, JobEvent, Job):
            session.execute(delete(table_))
        document = make_document(resource_config={"gpu_count": 1, "device_type": "cpu"})
        for _ in range(jobs):
            make_job(session, state=JobState.QUEUED, document=document)
    with db.write() as session:
        session.execute(update(Queue).values(is_paused=False))
    began = time.monotonic()
    while _claimed(db) < jobs:
        if time.monotonic() - began > SECONDS:
            sys.exit(f"only {_claimed(db)} of {jobs} jobs were claimed in {SECONDS:g} s")
        time.sleep(0.02)
    return time.monotonic() - began


def served(settings: Settings, messages: int, left: Any) -> float:
    """Seconds until as many messages of plain tasks are sent and taken."""
    publish = connect_broker(settings)
    publish(Message(NOTHING, ("", 0), NOTHING_QUEUE))  # connects
    began = time.monotonic()
    for number in range(messages):
        publish(Message(NOTHING, ("", number), NOTHING_QUEUE))
    while left():
        time.sleep(0.005)
    return time.monotonic() - began


def _claimed(db: Database) -> int:
    with db.read() as session:
        return session.scalar(select(func.count()).select_from(Lease).where(Lease.counter > 0)) or 0


def _playing(nodes: int, slots: int) -> list[str]:
    return [sys.executable, "-m", "benchmarks.played_nodes", str(nodes), str(slots)]


def _environment(folder: Path, database_url: str, broker_url: str) -> dict[str, str]:
    return {
        **servers.environment(folder, database_url, broker_url),
        # Nobody renews: what is measured is over before anything is taken away.
        "TRAINYARD_LEASE_TTL_SECONDS": str(2 * SECONDS),
        "TRAINYARD_NODE_LOST_SECONDS": str(2 * SECONDS),
    }


@contextmanager
def _process(command: list[str], settings: Settings, *, until: str = "") -> Iterator[None]:
    folder = settings.data.dir.parent
    environment = {
        **servers.plain_environment(), **_environment(folder, settings.database.url, settings.broker.url),
        "PYTHONPATH": str(Path(__file__).parent.parent),
    }  # fmt: skip
    process = subprocess.Popen(
        command, env=child_environment(environment, settings), cwd=folder, stdout=subprocess.PIPE, text=True
    )
    try:
        if until and process.stdout is not None and process.stdout.readline().strip() != until:
            sys.exit("a process of the benchmark did not start")
        yield
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(timeout=60)


def table(report: dict[str, Any]) -> str:
    lines = ["| database | jobs | claimed per second | plain tasks per second | ratio |", "|---|---|---|---|---|"]
    for kind, sizes in report["databases"].items():
        lines += [
            f"| {kind} | {f['jobs']} | {f['per_second']} | {f['plain_per_second']} | {f['ratio']} |" for f in sizes
        ]
    smallest = [sizes[0] for sizes in report["databases"].values()]
    is_kept = all(f["per_second"] >= PER_SECOND and f["ratio"] >= RATIO for f in smallest)
    said = "kept" if is_kept else "NOT KEPT"
    return "\n".join([*lines, f"goal: ≥ {PER_SECOND:g} per second and ≥ {RATIO} of plain tasks: {said}"])


if __name__ == "__main__":
    main(sys.argv[1:])
