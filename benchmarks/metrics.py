"""Reading the metrics of a job of a million points, and what keeping them readable costs the one who writes.

    python -m benchmarks.metrics [--points 1000000] [--reads 100]

On SQLite and on PostgreSQL, each with all points in one series and spread over eight: `GET /v1/jobs/{id}/metrics` in
this process (everything but the network), alternating with the bare SQL of the same query, minimum and maximum of 499
buckets per series. Writing is measured in batches of 1000 points as a supervisor writes them, alternating with and
without the summaries. One JSON line on standard output, a table on standard error.
"""

import argparse
import json
import math
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from sqlalchemy import text

from app.database.engine import Database, make_engine
from app.migrations.runner import upgrade
from app.services.telemetry import stored_metrics, summaries
from app.services.telemetry.stored_metrics import MetricValue, TelemetryReports
from app.services.telemetry.summaries import SummaryCount
from benchmarks.machine import description
from tests.builders.factories import make_attempt, make_job, make_node
from tests.systems.apps import Api
from tests.systems.servers import PostgresServer

BATCH = 1000
GOALS = {"p99_ms": 150.0, "ratio": 3.0}
BARE = text("""
    SELECT name, CAST(step AS BIGINT) * 499 / :steps AS bucket, min(value), max(value), count(*)
    FROM metric WHERE job_id = :job_id GROUP BY name, bucket ORDER BY name, bucket
""")


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--points", type=int, default=1_000_000)
    parser.add_argument("--reads", type=int, default=100)
    given = parser.parse_args(arguments)
    machine = description()
    folder = Path(tempfile.mkdtemp(prefix="trainyard-metrics-"))
    postgres = PostgresServer()
    try:
        postgres.start()
        postgres.execute("CREATE DATABASE metrics")
        urls = {"sqlite": f"sqlite:///{folder}/metrics.db", "postgresql": postgres.url("metrics")}
        figures = {kind: measured(url, folder / kind, given.points, given.reads) for kind, url in urls.items()}
    finally:
        postgres.close()
        shutil.rmtree(folder)
    report = {"benchmark": "metrics", "points": given.points, "reads": given.reads, **figures, "machine": machine}
    print(table(report), file=sys.stderr)
    print(json.dumps(report))


def measured(url: str, folder: Path, points: int, reads: int) -> dict[str, Any]:
    folder.mkdir()
    engine = make_engine(url)
    upgrade(engine)
    db = Database().bind(engine)
    try:
        api = Api(db, folder)
        figures: dict[str, Any] = {}
        for series in (1, 8):
            job = running_job(db, f"node-{series}")
            writing = write(db, job, series, points // series)
            if engine.dialect.name == "postgresql":
                with engine.execution_options(isolation_level="AUTOCOMMIT").connect() as connection:
                    connection.execute(text("VACUUM ANALYZE"))  # what its autovacuum does within a minute
            figures[f"series_{series}"] = {**writing, **read(api, job[0], points // series, reads)}
        return figures
    finally:
        db.close()


def running_job(db: Database, node: str) -> tuple[str, int]:
    with db.write() as session:
        job = make_job(session)
        return job.id, make_attempt(session, job, make_node(session, node)).fence


def write(db: Database, job: tuple[str, int], series: int, steps: int) -> dict[str, float]:
    """Microseconds per point: of the points themselves, and of their summaries."""
    names = [f"metric-{n}" for n in range(series)]
    count, storing, summarising = SummaryCount(), 0.0, 0.0
    per_batch = BATCH // series
    for first in range(0, steps, per_batch):
        batch = [point(name, step) for step in range(first, min(steps, first + per_batch)) for name in names]
        began = time.perf_counter()
        stored_metrics.store(db, job_id=job[0], attempt=1, fence=job[1], reports=TelemetryReports(points=batch))
        stored = time.perf_counter()
        count.add((p.name, p.step) for p in batch)
        if due := count.due():
            summaries.extend(db, job_id=job[0], fence=job[1], newest=due)
            count.done(due)
        storing += stored - began
        summarising += time.perf_counter() - stored
    each = 1e6 / (series * steps)
    return {"store_us_per_point": round(storing * each, 1), "summary_us_per_point": round(summarising * each, 1)}


def point(name: str, step: int) -> MetricValue:
    value = math.nan if step % 333_333 == 7 else math.sin(step / 1000) + (step * 2654435761 % 1000) / 1000
    return MetricValue(name=name, step=step, at=datetime.now(UTC), value=value)


def read(api: Api, job_id: str, steps: int, reads: int) -> dict[str, float]:
    """Milliseconds of the request and of the bare SQL, alternating."""
    requests: list[float] = []
    bare: list[float] = []
    for number in range(reads):
        requests.append(timed(lambda: api.call("GET", f"/v1/jobs/{job_id}/metrics")))
        if number % 10 == 0:
            bare.append(timed(lambda: ask_bare(api.db, job_id, steps)))
    return {
        "api_p50_ms": percentile(requests, 0.5),
        "api_p99_ms": percentile(requests, 0.99),
        "bare_sql_p50_ms": percentile(bare, 0.5),
        "ratio": round(statistics.median(requests) / statistics.median(bare), 3),
    }


def ask_bare(db: Database, job_id: str, steps: int) -> None:
    with db.read() as session:
        session.execute(BARE, {"job_id": job_id, "steps": steps}).all()


def timed(act: Callable[[], object]) -> float:
    began = time.perf_counter()
    act()
    return 1000 * (time.perf_counter() - began)


def percentile(values: list[float], share: float) -> float:
    return round(sorted(values)[min(len(values) - 1, int(share * len(values)))], 1)


def table(report: dict[str, Any]) -> str:
    lines = ["| database, series | request p50 | p99 | bare SQL p50 | ratio | store, per point | summaries |"]
    lines += ["|---|---|---|---|---|---|---|"]
    for kind in ("sqlite", "postgresql"):
        for name, f in report[kind].items():
            lines.append(
                f"| {kind}, {name.removeprefix('series_')} | {f['api_p50_ms']} ms | {f['api_p99_ms']} ms "
                f"| {f['bare_sql_p50_ms']} ms | {f['ratio']} | {f['store_us_per_point']} µs "
                f"| {f['summary_us_per_point']} µs |"
            )
    return "\n".join([*lines, f"\ngoal: p99 ≤ {GOALS['p99_ms']:g} ms, ratio ≤ {GOALS['ratio']:g}"])


if __name__ == "__main__":
    main(sys.argv[1:])
