"""What waiting jobs cost while nothing changes: processor time, statements and memory of a coordinator (B6, B11).

    python -m benchmarks.scale [--jobs 2500] [--seconds 30] [--reads 100] [--databases sqlite,postgresql]

A real coordinator and node worker on an empty database, then with as many waiting jobs as ``--jobs``, twice and four
times; `--jobs 25000` ends at 100 000. The jobs need GPUs, of which the machine has none: no job can start, but every
full pass reads all of them, since the node's CPU slots are free. Before each measurement the coordinator has planned
the jobs and is at rest. `GET /v1/queue` is read by an API in this process (everything but the network), its first page
and the next one alternating. One JSON line on standard output, a table on standard error.
"""

import argparse
import json
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import text

from app.cli.local.command_lines import child_environment
from app.database.engine import Database
from app.database.from_settings import open_database
from app.models import Job
from app.services.operations.bootstrap import prepare
from benchmarks import servers
from benchmarks.footprint import pss_mb
from benchmarks.load import percentile
from benchmarks.machine import description
from benchmarks.statements import counted, counting_environment, idle_cost
from config.queues import COORDINATOR, NODE, worker_command
from config.settings import Settings, load_settings
from tests.builders.factories import make_document, make_job
from tests.systems.apps import Api

GOALS = {"coordinator_percent": 3.0, "idle_percent": 1.0, "idle_statements": 6.0}
GROWTH = (0, 1, 2, 4)
SETTLE_SECONDS = 300.0
REST_SECONDS, RESTS = 4.0, 3
PAGE = 20
# A job that the coordinator has planned and mirrored, many times; only its id differs.
COLUMNS = ", ".join(f'"{column.name}"' for column in Job.__table__.columns if column.name != "id")
FILL = f"""
    INSERT INTO job (id, {COLUMNS})
    WITH RECURSIVE numbers (n) AS (SELECT CAST(:first AS integer) UNION ALL SELECT n + 1 FROM numbers WHERE n < :last)
    SELECT 'job-waits-' || n, {COLUMNS} FROM numbers, job WHERE id = :like
"""


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=2500)
    parser.add_argument("--seconds", type=float, default=30.0, help="of each measurement at rest")
    parser.add_argument("--reads", type=int, default=100)
    parser.add_argument("--databases", default="sqlite,postgresql")
    given = parser.parse_args(arguments)
    machine = description()
    kinds = {kind: measured(kind, given) for kind in given.databases.split(",")}
    report = {"benchmark": "scale", "seconds": given.seconds, "reads": given.reads, **kinds, "machine": machine}
    print(table(kinds), file=sys.stderr)
    print(json.dumps(report))


def measured(kind: str, given: argparse.Namespace) -> list[dict[str, Any]]:
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="trainyard-scale-")))
        broker = servers.started_broker(stack)
        (url,) = servers.databases(kind, folder, stack, ("scale",))
        environment = {**servers.plain_environment(), **servers.environment(folder, url, broker.url)}
        settings = prepare(load_settings(environment))
        db = open_database(settings.database)
        stack.callback(db.close)
        (folder / "api").mkdir()
        api = Api(db, folder / "api")
        counts = folder / "statements"
        environment |= counting_environment(counts)
        coordinator = stack.enter_context(_process(COORDINATOR, settings, environment))
        node = stack.enter_context(_process(NODE, settings, environment))
        found, stored = [], 0
        for factor in GROWTH:
            fill(db, stored, given.jobs * factor)
            stored = given.jobs * factor
            settle(counts)
            cost = idle_cost(counts, [coordinator, node], given.seconds)
            found.append(
                {
                    "jobs": stored,
                    "coordinator_percent": cost.percent[coordinator],
                    "both_percent": cost.total_percent,
                    "statements": cost.statements,
                    "coordinator_mb": round(pss_mb(coordinator), 1),
                    **(read(api, given.reads) if stored else {}),
                }
            )
        return found


def fill(db: Database, first: int, last: int) -> None:
    """Waiting jobs up to this number; the first is made and planned before it is multiplied."""
    if not last:
        return
    with db.write() as session:
        document = make_document(resource_config={"gpu_count": 1, "device_type": "cuda"})
        like = make_job(session, id=f"job-first-{last}", document=document).id
    deadline = time.monotonic() + SETTLE_SECONDS
    while not is_explained(db, like):
        if time.monotonic() > deadline:
            sys.exit(f"the coordinator does not say what {like} waits for")
        time.sleep(0.2)
    with db.write() as session:
        session.execute(text(FILL), {"first": first + 2, "last": last, "like": like})


def is_explained(db: Database, job_id: str) -> bool:
    with db.read() as session:
        job = session.get_one(Job, job_id)
        return bool(job.pending_reason) and job.mirrored_version == job.version


def settle(counts: Path) -> None:
    """Until the coordinator has planned after the last change, and writes to no job any more."""
    deadline, before, at_rest = time.monotonic() + SETTLE_SECONDS, -1, 0
    while time.monotonic() < deadline:
        time.sleep(REST_SECONDS)
        sent = counted(counts)
        changes = sum(n for statement, n in sent.items() if statement.startswith("UPDATE job"))
        at_rest = at_rest + 1 if sent and changes == before else 0
        if at_rest == RESTS:
            return
        before = changes
    sys.exit(f"the coordinator is not at rest after {SETTLE_SECONDS:g} s")


def read(api: Api, reads: int) -> dict[str, float]:
    """Milliseconds of a page of `GET /v1/queue`."""
    path = f"/v1/queue?page_size={PAGE}"
    paths = (path, f"{path}&page_token={api.get(path)['next_page_token']}")
    times = []
    for number in range(reads):
        began = time.perf_counter()
        api.get(paths[number % 2])
        times.append((time.perf_counter() - began) * 1000)
    return {"queue_p50_ms": percentile(times, 0.5), "queue_p99_ms": percentile(times, 0.99)}


@contextmanager
def _process(role: str, settings: Settings, environment: dict[str, str]) -> Iterator[int]:
    """A worker of this role, from when it has asked its first question; its process id."""
    process = subprocess.Popen(
        worker_command(role),
        env={**environment, **child_environment(environment, settings)},
        cwd=settings.data.dir,
        stderr=subprocess.DEVNULL,
    )
    try:
        yield process.pid
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(timeout=60)


def table(kinds: dict[str, list[dict[str, Any]]]) -> str:
    head = "waiting jobs | coordinator (% of a core) | with node worker | statements/s | coordinator (MB)"
    lines = [f"| database | {head} | GET /v1/queue p50, p99 (ms) |", "|---|---|---|---|---|---|---|"]
    for kind, rows in kinds.items():
        for row in rows:
            cells = [kind, *(row[name] for name in ("jobs", "coordinator_percent", "both_percent", "statements"))]
            cells += [row["coordinator_mb"], f"{row['queue_p50_ms']}, {row['queue_p99_ms']}" if row["jobs"] else ""]
            lines.append(f"| {' | '.join(map(str, cells))} |")
    goals = (
        "≤ {coordinator_percent:g} % with waiting jobs; idle ≤ {idle_percent:g} % and {idle_statements:g} statements/s"
    )
    return "\n".join([*lines, "", "Goals: " + goals.format(**GOALS)])


if __name__ == "__main__":
    main(sys.argv[1:])
