"""From a line of queued jobs to claims: how many per second are planned, announced, consumed and claimed (B7).

    python -m benchmarks.dispatch [--jobs 1000] [--nodes 64] [--rounds 3] [--databases sqlite,postgresql]

A real coordinator, a real broker, and one process that plays the nodes: registered, with heartbeats, consuming their
queues and claiming each announced job, but training nothing. The jobs wait in a paused queue; the time runs from its
resumption to the last claim. Alternating with it, the same broker and the same kind of worker take as many messages for
a task that does nothing, sent one after the other by one process. Grows by the jobs: as many as ``--jobs``, twice and
four times. Beside the rates stands the processor time of each process for one job, which hardly depends on other load
of the machine. One JSON line on standard output, a table on standard error.
"""

import argparse
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any

from sqlalchemy import delete, func, select, update

from app.cli.local.command_lines import child_environment
from app.database.engine import Database
from app.database.from_settings import open_database
from app.domain.lifecycle.states import JobState
from app.models import Attempt, Job, JobEvent, Lease, Queue, Reservation
from app.services.operations.bootstrap import prepare
from app.services.requests.wakeups import Message, connect_broker
from benchmarks import servers
from benchmarks.machine import description
from benchmarks.played_nodes import NOTHING, NOTHING_QUEUE
from benchmarks.processor_time import seconds_by_child
from config.queues import COORDINATOR, worker_command
from config.settings import Settings, load_settings
from tests.builders.factories import make_document, make_job

PER_SECOND, RATIO = 200.0, 0.3
GROWTH = (1, 2, 4)
SLOTS_FOR_ALL = 1.1
SECONDS = 300.0
# Whose processor time is shown; ``plain`` is that of all who send, keep and take a plain task.
PARTS = ("coordinator", "nodes", "broker", "database", "plain")


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
        settings = prepare(load_settings(played_environment(folder, url, broker.url)))
        db = open_database(settings.database)
        stack.callback(db.close)
        plain = stack.enter_context(running_process(playing(0, 0), settings, until="ready"))
        slots = int(given.jobs * GROWTH[-1] * SLOTS_FOR_ALL / given.nodes)
        nodes = stack.enter_context(running_process(playing(given.nodes, slots), settings, until="ready"))
        coordinator = stack.enter_context(running_process(worker_command(COORDINATOR), settings))
        parts = {broker.pid: "broker", plain: "plain", nodes: "nodes", coordinator: "coordinator"}
        client = stack.enter_context(broker.client())

        def serve(jobs: int) -> float:
            return served(settings, jobs, lambda: int(client.llen(NOTHING_QUEUE)))

        line_up(db, given.nodes)
        dispatched(db, given.nodes)  # wait until the coordinator is up: its start is not measured
        return [by_turns(db, serve, given.rounds, given.jobs * factor, parts) for factor in GROWTH]


def by_turns(
    db: Database, serve: Callable[[int], float], rounds: int, jobs: int, parts: Mapping[int, str]
) -> dict[str, Any]:
    ours, plain, spent = [], [], []
    for _ in range(rounds):
        line_up(db, jobs)
        with _spending(parts, jobs) as of_ours:
            ours.append(jobs / dispatched(db, jobs))
        with _spending(parts, jobs) as of_plain:
            plain.append(jobs / serve(jobs))
        of_ours["plain"] = of_plain["plain"] + of_plain["broker"] + of_plain["benchmark"]
        spent.append(of_ours)
    return {
        "jobs": jobs,
        "per_second": round(statistics.median(ours)),
        "plain_per_second": round(statistics.median(plain)),
        "ratio": round(statistics.median(a / b for a, b in zip(ours, plain, strict=True)), 2),
        "cpu_ms": {part: round(statistics.median(each[part] for each in spent), 2) for part in PARTS},
    }


@contextmanager
def _spending(parts: Mapping[int, str], jobs: int) -> Iterator[dict[str, float]]:
    """Filled at the end: milliseconds for each job by part; ``database`` is what none of the others has started."""
    spent: dict[str, float] = {}
    before, own = seconds_by_child(os.getpid()), time.process_time()
    yield spent
    after = seconds_by_child(os.getpid())
    spent |= dict.fromkeys(PARTS, 0.0) | {"benchmark": (time.process_time() - own) * 1000 / jobs}
    for child, seconds in after.items():
        spent[parts.get(child, "database")] += (seconds - before[child]) * 1000 / jobs


def line_up(db: Database, jobs: int) -> None:
    """So many queued jobs, and nothing else."""
    with db.write() as session:
        session.execute(update(Queue).values(is_paused=True))
        for table_ in (Reservation, Lease, Attempt, JobEvent, Job):
            session.execute(delete(table_))
        document = make_document(resource_config={"gpu_count": 1, "device_type": "cpu"})
        for _ in range(jobs):
            make_job(session, state=JobState.QUEUED, document=document)


def dispatched(db: Database, jobs: int) -> float:
    """Seconds from the opening of the queue to the last claim."""
    with db.write() as session:
        session.execute(update(Queue).values(is_paused=False))
    began = time.monotonic()
    while _claimed(db) < jobs:
        if time.monotonic() - began > SECONDS:
            sys.exit(f"only {_claimed(db)} of {jobs} jobs were claimed in {SECONDS:g} s")
        time.sleep(0.02)
    return time.monotonic() - began


def served(settings: Settings, messages: int, left: Callable[[], int]) -> float:
    """Seconds until as many messages of plain tasks are sent and taken."""
    publish = connect_broker(settings)
    publish(Message(NOTHING, (("", 0),), NOTHING_QUEUE))  # connects
    began = time.monotonic()
    for number in range(messages):
        publish(Message(NOTHING, (("", number),), NOTHING_QUEUE))
    while left():
        time.sleep(0.005)
    return time.monotonic() - began


def _claimed(db: Database) -> int:
    with db.read() as session:
        return session.scalar(select(func.count()).select_from(Lease).where(Lease.counter > 0)) or 0


def playing(*arguments: float) -> list[str]:
    """The command of a process that plays nodes, by its arguments."""
    return [sys.executable, "-m", "benchmarks.played_nodes", *map(str, arguments)]


def played_environment(folder: Path, database_url: str, broker_url: str) -> dict[str, str]:
    return {
        **servers.environment(folder, database_url, broker_url),
        # No process renews leases: the measurement ends before they expire.
        "TRAINYARD_LEASE_TTL_SECONDS": str(2 * SECONDS),
        "TRAINYARD_NODE_LOST_SECONDS": str(2 * SECONDS),
    }


@contextmanager
def running_process(
    command: list[str], settings: Settings, *, until: str = "", more: Mapping[str, str] = MappingProxyType({})
) -> Iterator[int]:
    """Its id; ``more`` is in its environment, too."""
    folder = settings.data.dir.parent
    environment = {
        **servers.plain_environment(),
        **played_environment(folder, settings.database.url, settings.broker.url),
        "PYTHONPATH": str(Path(__file__).parent.parent),
        **more,
    }
    process = subprocess.Popen(
        command, env=child_environment(environment, settings), cwd=folder, stdout=subprocess.PIPE, text=True
    )
    try:
        if until and process.stdout is not None and process.stdout.readline().strip() != until:
            sys.exit("a process of the benchmark did not start")
        yield process.pid
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(timeout=60)


def table(report: dict[str, Any]) -> str:
    parts = " | ".join(f"{part}, ms" for part in PARTS)
    lines = [f"| database | jobs | claimed per second | plain tasks per second | ratio | {parts} |"]
    lines.append("|---" * (5 + len(PARTS)) + "|")
    for kind, sizes in report["databases"].items():
        lines += [
            f"| {kind} | {f['jobs']} | {f['per_second']} | {f['plain_per_second']} | {f['ratio']} | "
            + " | ".join(str(f["cpu_ms"][part]) for part in PARTS)
            + " |"
            for f in sizes
        ]
    smallest = [sizes[0] for sizes in report["databases"].values()]
    is_kept = all(f["per_second"] >= PER_SECOND and f["ratio"] >= RATIO for f in smallest)
    said = "kept" if is_kept else "NOT KEPT"
    return "\n".join([*lines, f"goal: ≥ {PER_SECOND:g} per second and ≥ {RATIO} of plain tasks: {said}"])


if __name__ == "__main__":
    main(sys.argv[1:])
