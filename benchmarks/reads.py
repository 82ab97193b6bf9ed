"""A page of jobs among a million, filtered by label and status, against the bare SQL of the same question (B8).

    python -m benchmarks.reads [--jobs 1000000] [--reads 200]

On PostgreSQL, with a quarter, half and all of the jobs. `GET /v1/jobs` in this process (everything but the network), by
turns with the same rows and the same capped count asked for in SQL by hand. Each question is asked of a label that many
jobs have, one that few have, and one that nobody has; and for a page in the middle. One JSON line on standard output, a
table on standard error. (`benchmarks.metrics` measures the other half of B8.)
"""

import argparse
import json
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from sqlalchemy import text

from app.extensions import Database, make_engine
from app.migrations.runner import upgrade
from app.security.permissions import Role
from benchmarks.load import median, percentile
from benchmarks.machine import description
from tests.apps import Api
from tests.factories import make_document
from tests.servers import PostgresServer

GOALS = {"p99_ms": 50.0, "ratio": 3.0}
GROWTH = (4, 2, 1)
PAGE = 20
# Who asks: a super admin sees all projects, a user one of ten.
PROJECTS = 10
# Labels by how many jobs have each value: team has 10, group 1000, ticket as many as every fiftieth job.
QUESTIONS: dict[str, dict[str, str]] = {
    "a tenth, COMPLETED": {"labels.team": "team-7", "status": "COMPLETED"},
    "a tenth, FAILED": {"labels.team": "team-7", "status": "FAILED"},
    "a thousandth": {"labels.group": "group-77", "status": "COMPLETED"},
    "two labels": {"labels.team": "team-7", "labels.group": "group-77", "status": "COMPLETED"},
    "few": {"labels.ticket": "ticket-77", "status": "COMPLETED"},
    "nobody's": {"labels.team": "nobody", "status": "COMPLETED"},
    "no label, FAILED": {"status": "FAILED"},
    "all": {},
    "name, a tenth": {"name": "run-12", "labels.team": "team-7"},
    "by priority, a tenth": {"labels.team": "team-7", "status": "COMPLETED", "order_by": "-priority"},
}
FILL_JOBS = text("""
    INSERT INTO job (id, project, created_by, name, labels, spec, sealed_secrets, "foreign", training_type, framework,
        queue, priority, max_retries, status, status_reason, pending_reason, version, mirrored_version, fence,
        event_seq, metric_seq, requested_reason, requested_by, pause_saves, checkpoint_requests, attempt, retries_used,
        node_names, progress, current_step, current_epoch, tokens, elapsed_seconds, gpu_seconds, latest_metrics,
        created_at, updated_at)
    SELECT 'job-' || lpad(to_hex(n), 8, '0') || '-0000-7000-8000-000000000000', 'project-' || n % :projects, 'key-x',
        'run-' || n, json_build_object('team', 'team-' || n / 7 % 10, 'group', 'group-' || n / 3 % 1000)::json,
        CAST(:spec AS json), '', '{}', 'SFT', 'HF_TRAINER', 'default', n % 11, 3,
        CASE WHEN n % 100 < 90 THEN 'COMPLETED' WHEN n % 100 < 97 THEN 'FAILED' ELSE 'CANCELLED' END, '', '', 5, 5,
        2, 9, 0, '', '', true, 0, 1, 0, '["local"]', 1, 100, 1, 0, 60, 0, '{"loss": 1.5}',
        now() - (:last - n) * interval '1 second', now()
    FROM generate_series(CAST(:first AS integer), CAST(:last AS integer)) AS n
""")
FILL_LABELS = text("""
    INSERT INTO job_label (job_id, key, value)
    SELECT 'job-' || lpad(to_hex(n), 8, '0') || '-0000-7000-8000-000000000000', label.key, label.value
    FROM generate_series(CAST(:first AS integer), CAST(:last AS integer)) AS n,
        LATERAL (VALUES ('team', 'team-' || n / 7 % 10), ('group', 'group-' || n / 3 % 1000),
            ('ticket', CASE WHEN n % 50 = 0 THEN 'ticket-' || n / 50 % 2000 END)) AS label(key, value)
    WHERE label.value IS NOT NULL
""")


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=1_000_000)
    parser.add_argument("--reads", type=int, default=200)
    given = parser.parse_args(arguments)
    machine = description()
    folder = Path(tempfile.mkdtemp(prefix="trainyard-reads-"))
    postgres = PostgresServer()
    try:
        postgres.start()
        postgres.execute("CREATE DATABASE reads")
        sizes = measured(postgres.url("reads"), folder, given.jobs, given.reads)
    finally:
        postgres.close()
        shutil.rmtree(folder)
    report = {"benchmark": "reads", "jobs": given.jobs, "reads": given.reads, "sizes": sizes, "machine": machine}
    print(table(report), file=sys.stderr)
    print(json.dumps(report))


def measured(url: str, folder: Path, jobs: int, reads: int) -> list[dict[str, Any]]:
    engine = make_engine(url)
    upgrade(engine)
    db = Database().bind(engine)
    try:
        api = Api(db, folder)
        callers = {"super admin": api.key, "project": api.make_key(Role.USER, "project-3")}
        for number in range(PROJECTS):
            api.make_key(Role.USER, f"project-{number}")
        found, stored = [], 0
        for part in GROWTH:
            fill(db, stored + 1, jobs // part)
            stored = jobs // part
            questions = {
                f"{name}, {who}": ask(api, key, query, reads, "project-3" if who == "project" else None)
                for name, query in QUESTIONS.items()
                for who, key in callers.items()
            }
            found.append({"jobs": stored, "questions": questions})
        return found
    finally:
        db.close()


def fill(db: Database, first: int, last: int) -> None:
    with db.write() as session:
        spec = json.dumps(make_document())
        session.execute(FILL_JOBS, {"first": first, "last": last, "projects": PROJECTS, "spec": spec})
        session.execute(FILL_LABELS, {"first": first, "last": last})
    with db.engine.execution_options(isolation_level="AUTOCOMMIT").connect() as connection:
        connection.execute(text("VACUUM ANALYZE"))  # what its autovacuum does within a minute


def ask(api: Api, key: str, query: dict[str, str], reads: int, project: str | None) -> dict[str, Any]:
    """Milliseconds of the request, at the first page and after it, and of the bare SQL, by turns."""
    path = f"/v1/jobs?{urlencode({**query, 'page_size': PAGE})}"
    first = api.call("GET", path, key=key)
    data = api.data(first)
    token = data["next_page_token"]
    paths = [path, f"{path}&page_token={token}"] if token else [path]
    statement, values = bare(query, project)
    requests: list[float] = []
    by_hand: list[float] = []
    for number in range(reads):
        requests.append(timed(lambda: api.call("GET", random.choice(paths), key=key)))
        if number % 4 == 0:
            by_hand.append(timed(lambda: ask_bare(api.db, statement, values)))
    return {
        "found": data["total_count"], "p50_ms": percentile(requests, 0.5), "p99_ms": percentile(requests, 0.99),
        "bare_p50_ms": percentile(by_hand, 0.5), "bare_p99_ms": percentile(by_hand, 0.99),
        "ratio": round(median(requests) / median(by_hand), 2),
    }  # fmt: skip


def bare(query: dict[str, str], project: str | None) -> tuple[str, dict[str, Any]]:
    """The condition of the same question by hand, and its values."""
    conditions, values = ["true"], dict[str, Any]()
    for number, (name, value) in enumerate(query.items()):
        if name.startswith("labels."):
            same = f"l.key = :k{number} AND l.value = :v{number}"
            conditions.append(f"EXISTS (SELECT 1 FROM job_label l WHERE l.job_id = job.id AND {same})")
            values |= {f"k{number}": name.removeprefix("labels."), f"v{number}": value}
        elif name != "order_by":
            conditions.append(
                f"left(name, length(:v{number})) = :v{number}" if name == "name" else f"{name} = :v{number}"
            )
            values[f"v{number}"] = value
    if project is not None:
        conditions.append("project = :project")
        values["project"] = project
    order = query.get("order_by", "-created_at").removeprefix("-")
    return f"{' AND '.join(conditions)} ORDER BY {order} DESC, id DESC", values


def ask_bare(db: Database, statement: str, values: dict[str, Any]) -> None:
    where, _, order = statement.partition(" ORDER BY ")
    with db.engine.connect() as connection:
        connection.execute(text(f"SELECT * FROM job WHERE {where} ORDER BY {order} LIMIT {PAGE + 1}"), values).all()
        counted = text(f"SELECT count(*) FROM (SELECT 1 FROM job WHERE {where} LIMIT 10001) AS found")
        connection.execute(counted, values).scalar()


def timed(act: Callable[[], object]) -> float:
    began = time.perf_counter()
    act()
    return 1000 * (time.perf_counter() - began)


def table(report: dict[str, Any]) -> str:
    lines = ["| question | jobs | found | p50 | p99 | bare SQL p50 | ratio |", "|---|---|---|---|---|---|---|"]
    for name in report["sizes"][0]["questions"]:
        for size in report["sizes"]:
            f = size["questions"][name]
            lines.append(
                f"| {name} | {size['jobs']} | {f['found']} | {f['p50_ms']} ms | {f['p99_ms']} ms "
                f"| {f['bare_p50_ms']} ms | {f['ratio']} |"
            )
    return "\n".join([*lines, f"\ngoal: p99 ≤ {GOALS['p99_ms']:g} ms, ratio ≤ {GOALS['ratio']:g}"])


if __name__ == "__main__":
    main(sys.argv[1:])
