"""A page of jobs among a million, by every filter and order, against the bare SQL of the same question (B8).

    python -m benchmarks.reads [--jobs 1000000] [--reads 200] [--only TEXT]

On PostgreSQL, with a quarter, half and all of the jobs, each with two lines of the audit trail. `GET /v1/jobs` and
`GET /v1/audit` in this process (everything but the network), alternating with handwritten SQL for the same rows and
the same capped count. Each question is asked by a super admin, who sees all projects, and by an admin of one of ten;
and for a page in the middle. One JSON line on standard output, a table on standard error. (`benchmarks.metrics`
measures the other half of B8.)
"""

import argparse
import json
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from sqlalchemy import text

from app.database.engine import Database, make_engine
from app.migrations.runner import upgrade
from app.security.permissions import Role
from benchmarks.load import median, percentile
from benchmarks.machine import description
from tests.builders.factories import make_document, make_node, make_queue
from tests.systems.apps import Api
from tests.systems.servers import PostgresServer

GOALS = {"p99_ms": 50.0, "ratio": 3.0}
GROWTH = (4, 2, 1)
PAGE = 20
PROJECTS = 10
# Labels by how many jobs have each value: team has 10, group 1000, ticket as many as every fiftieth job.
QUESTIONS: dict[str, dict[str, str]] = {
    "a tenth, COMPLETED": {"labels.team": "team-7", "status": "COMPLETED"},
    "a tenth, FAILED": {"labels.team": "team-7", "status": "FAILED"},
    "a tenth, PAUSED": {"labels.team": "team-7", "status": "PAUSED"},
    "a tenth, DPO": {"labels.team": "team-7", "training_type": "DPO"},
    "a thousandth": {"labels.group": "group-77", "status": "COMPLETED"},
    "two labels": {"labels.team": "team-7", "labels.group": "group-77", "status": "COMPLETED"},
    "two tenths": {"labels.team": "team-7", "labels.shift": "shift-3"},
    "few": {"labels.ticket": "ticket-77", "status": "COMPLETED"},
    "no match": {"labels.team": "none", "status": "COMPLETED"},
    "a tenth, by priority": {"labels.team": "team-7", "status": "COMPLETED", "order_by": "-priority"},
    "all": {},
    "FAILED": {"status": "FAILED"},
    "PAUSED": {"status": "PAUSED"},
    "name": {"name": "run-12"},
    "name, FAILED": {"name": "run-1", "status": "FAILED"},
    "name, a tenth": {"name": "run-12", "labels.team": "team-7"},
    "LORA": {"training_type": "LORA"},
    "FULL_FINETUNE": {"training_type": "FULL_FINETUNE"},
    "MEGATRON": {"framework": "MEGATRON"},
    "DPO in DEEPSPEED": {"training_type": "DPO", "framework": "DEEPSPEED"},
    "rare in rare": {"training_type": "FULL_FINETUNE", "framework": "MEGATRON"},
    "three filters": {"training_type": "LORA", "queue": "gpu", "status": "FAILED"},
    "a queue": {"queue": "gpu"},
    "a key": {"created_by": "key-77"},
    "by priority": {"order_by": "-priority"},
    "by name": {"order_by": "name"},
    "by status": {"order_by": "-status"},
    "LORA by priority": {"training_type": "LORA", "order_by": "-priority"},
    "CANCELLED by priority": {"status": "CANCELLED", "training_type": "SFT", "order_by": "-priority"},
    "FULL_FINETUNE by name": {"training_type": "FULL_FINETUNE", "order_by": "-name"},
}
TRAIL: dict[str, dict[str, str]] = {
    "trail": {},
    "trail, a process": {"actor": "planner"},
    "trail, a person": {"actor": "key-77"},
    "trail, everyday": {"action": "job.submit"},
    "trail, an action": {"action": "key.create"},
    "trail, a noun": {"action": "key"},
    "trail, denied": {"outcome": "denied"},
    "trail, a person's action": {"actor": "key-77", "action": "job.submit"},
    "trail, denied to a person": {"actor": "key-77", "outcome": "denied"},
}
FILL_JOBS = text("""
    INSERT INTO job (id, project, created_by, name, labels, spec, sealed_secrets, "foreign", training_type, framework,
        queue, priority, max_retries, status, status_reason, pending_reason, version, mirrored_version, fence,
        event_seq, metric_seq, requested_reason, requested_by, pause_saves, checkpoint_requests, attempt, retries_used,
        node_names, progress, current_step, current_epoch, tokens, elapsed_seconds, gpu_seconds, latest_metrics,
        created_at, updated_at)
    SELECT 'job-' || lpad(to_hex(n), 8, '0') || '-0000-7000-8000-000000000000', 'project-' || n % :projects, 'key-x',
        'run-' || n, json_build_object('team', 'team-' || n / 7 % 10, 'group', 'group-' || n / 3 % 1000)::json,
        CAST(:spec AS json), '', '{}',
        CASE WHEN n / 2 % 100 < 60 THEN 'SFT' WHEN n / 2 % 100 < 89 THEN 'LORA' WHEN n / 2 % 100 < 99 THEN 'DPO'
            ELSE 'FULL_FINETUNE' END,
        CASE WHEN n / 5 % 100 < 80 THEN 'HF_TRAINER' WHEN n / 5 % 100 < 99 THEN 'DEEPSPEED' ELSE 'MEGATRON' END,
        CASE WHEN n / 11 % 100 < 85 THEN 'default' ELSE 'gpu' END, n % 11, 3,
        CASE WHEN n % 100 < 90 THEN 'COMPLETED' WHEN n % 100 < 97 THEN 'FAILED' ELSE 'CANCELLED' END, '', '', 5, 5,
        2, 9, 0, '', '', true, 0, 1, 0, '["local"]', 1, 100, 1, 0, 60, 0, '{"loss": 1.5}',
        now() - (:last - n) * interval '1 second', now()
    FROM generate_series(CAST(:first AS integer), CAST(:last AS integer)) AS n
""")
FILL_LABELS = text("""
    INSERT INTO job_label (job_id, key, value, project, training_type, framework, queue, created_at, ended_as)
    SELECT job.id, label.key, label.value, project, training_type, framework, queue, created_at, status
    FROM generate_series(CAST(:first AS integer), CAST(:last AS integer)) AS n
    JOIN job ON job.id = 'job-' || lpad(to_hex(n), 8, '0') || '-0000-7000-8000-000000000000',
        LATERAL (VALUES ('team', 'team-' || n / 7 % 10), ('group', 'group-' || n / 3 % 1000),
            ('shift', 'shift-' || n / 9 % 10),
            ('ticket', CASE WHEN n % 50 = 0 THEN 'ticket-' || n / 50 % 2000 END)) AS label(key, value)
    WHERE label.value IS NOT NULL
""")
FILL_TRAIL = text("""
    INSERT INTO audit_entry (id, at, project, actor, action, target, outcome, message, request_id, address, data)
    SELECT 'audit-' || lpad(to_hex(n), 8, '0') || '-' || line, now() - (:last - n) * interval '1 second',
        'project-' || n % :projects, CASE WHEN line = 2 THEN 'planner' ELSE 'key-' || n / 10 % 1000 END,
        CASE WHEN line = 2 THEN 'job.status' WHEN n % 1000 = 3 THEN 'key.create' ELSE 'job.submit' END, 'job-' || n,
        CASE WHEN line = 1 AND n % 200 = 3 THEN 'denied' ELSE 'done' END, '', '', '', '{}'
    FROM generate_series(CAST(:first AS integer), CAST(:last AS integer)) AS n, generate_series(1, 2) AS line
""")
MOSTLY_VISIBLE = text("""
    SELECT bool_and(relallvisible >= 0.9 * relpages) FROM pg_class
    WHERE relname IN ('job', 'job_label', 'audit_entry')
""")
VACUUMS = 30
# Path → its table and the time that it is sorted by.
TABLES = {"jobs": ("job", "created_at"), "audit": ("audit_entry", "at")}


@dataclass(frozen=True, kw_only=True)
class Question:
    path: str
    query: dict[str, str]
    project: str | None


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=1_000_000)
    parser.add_argument("--reads", type=int, default=200)
    parser.add_argument("--only", default="", help="questions whose name has this in it")
    given = parser.parse_args(arguments)
    machine = description()
    folder = Path(tempfile.mkdtemp(prefix="trainyard-reads-"))
    postgres = PostgresServer()
    try:
        postgres.start()
        postgres.execute("CREATE DATABASE reads")
        sizes = measured(postgres.url("reads"), folder, given)
    finally:
        postgres.close()
        shutil.rmtree(folder)
    report = {"benchmark": "reads", "jobs": given.jobs, "reads": given.reads, "sizes": sizes, "machine": machine}
    print(table(report), file=sys.stderr)
    print(json.dumps(report))


def measured(url: str, folder: Path, given: argparse.Namespace) -> list[dict[str, Any]]:
    engine = make_engine(url)
    upgrade(engine)
    db = Database().bind(engine)
    try:
        api = Api(db, folder)
        callers = {"super admin": (api.key, None), "project": (api.make_key(Role.ADMIN, "project-3"), "project-3")}
        for number in range(PROJECTS):
            api.make_key(Role.USER, f"project-{number}")
        with db.write() as session:
            make_queue(session, "gpu")
            # Its admin sees the lines since it was made.
            session.execute(text("UPDATE project SET created_at = now() - interval '1 year'"))
        found, stored = [], 0
        for part in GROWTH:
            fill(db, stored + 1, given.jobs // part)
            stored = given.jobs // part
            questions = {
                f"{name}, {who}": ask(api, key, Question(path=path, query=query, project=project), given.reads)
                for path, asked in (("jobs", QUESTIONS), ("audit", TRAIL))
                for name, query in asked.items()
                for who, (key, project) in callers.items()
                if given.only in name
            }
            found.append({"jobs": stored, "questions": questions})
        return found
    finally:
        db.close()


def fill_installation(db: Database, api: Api, *, jobs: int, nodes: int) -> None:
    """As many jobs and nodes, in all projects and a queue."""
    for number in range(PROJECTS):
        api.make_key(Role.USER, f"project-{number}")
    with db.write() as session:
        make_queue(session, "gpu")
        for number in range(nodes):
            make_node(session, f"node-{number:03}")
    fill(db, 1, jobs)


def fill(db: Database, first: int, last: int) -> None:
    with db.write() as session:
        spec = json.dumps(make_document())
        # What is not on the disk yet can't be vacuumed.
        session.execute(text("SET LOCAL synchronous_commit = on"))
        session.execute(FILL_JOBS, {"first": first, "last": last, "projects": PROJECTS, "spec": spec})
        session.execute(FILL_LABELS, {"first": first, "last": last})
        session.execute(FILL_TRAIL, {"first": first, "last": last, "projects": PROJECTS})
    _vacuum(db)


def _vacuum(db: Database) -> None:
    """What its autovacuum does within a minute."""
    with db.engine.execution_options(isolation_level="AUTOCOMMIT").connect() as connection:
        connection.execute(text("SET synchronous_commit = on"))
        for _ in range(VACUUMS):
            # In one command with ANALYZE, all tables but the first would not count as visible.
            connection.execute(text("VACUUM"))
            # A transaction near ours that is not on the disk yet, be it another database's, keeps rows from counting.
            if connection.execute(MOSTLY_VISIBLE).scalar_one():
                break
            time.sleep(1)
        else:
            raise RuntimeError(f"rows are not visible to all after VACUUM, {VACUUMS} times: who reads for so long?")
        connection.execute(text("ANALYZE"))
        connection.execute(text("RESET synchronous_commit"))


def ask(api: Api, key: str, question: Question, reads: int) -> dict[str, Any]:
    """Milliseconds of the request, at the first page and after it, and of the bare SQL, alternating."""
    path = f"/v1/{question.path}?{urlencode({**question.query, 'page_size': PAGE})}"
    first = api.call("GET", path, key=key)
    data = api.data(first)
    token = data["next_page_token"]
    paths = [path, f"{path}&page_token={token}"] if token else [path]
    statement, values = bare(question)
    requests: list[float] = []
    by_hand: list[float] = []
    for number in range(reads):
        requests.append(timed(lambda: api.call("GET", random.choice(paths), key=key)))
        if number % 4 == 0:
            by_hand.append(timed(lambda: ask_bare(api.db, statement, values)))
    return {
        "found": data["total_count"],
        "p50_ms": percentile(requests, 0.5),
        "p99_ms": percentile(requests, 0.99),
        "bare_p50_ms": percentile(by_hand, 0.5),
        "bare_p99_ms": percentile(by_hand, 0.99),
        "ratio": round(median(requests) / median(by_hand), 2),
    }


def bare(question: Question) -> tuple[str, dict[str, Any]]:
    """The same question by hand, and its values."""
    table, moment = TABLES[question.path]
    conditions, values = ["true"], dict[str, Any]()
    for number, (name, value) in enumerate(question.query.items()):
        values[f"v{number}"] = value
        if name.startswith("labels."):
            same = f"l.key = :k{number} AND l.value = :v{number}"
            conditions.append(f"EXISTS (SELECT 1 FROM job_label l WHERE l.job_id = job.id AND {same})")
            values[f"k{number}"] = name.removeprefix("labels.")
        elif name == "name" or (name == "action" and "." not in value):
            conditions.append(f"{name} LIKE :v{number}")
            values[f"v{number}"] = f"{value}%"
        elif name != "order_by":
            conditions.append(f"{name} = :v{number}")
    if question.project is not None:
        conditions.append("project = :project")
        values["project"] = question.project
    order = question.query.get("order_by", f"-{moment}")
    way = "DESC" if order.startswith("-") else "ASC"
    return f"{table} WHERE {' AND '.join(conditions)} ORDER BY {order.removeprefix('-')} {way}, id {way}", values


def ask_bare(db: Database, statement: str, values: dict[str, Any]) -> None:
    unordered = statement.partition(" ORDER BY ")[0]
    with db.engine.connect() as connection:
        connection.execute(text(f"SELECT * FROM {statement} LIMIT {PAGE + 1}"), values).all()
        counted = text(f"SELECT count(*) FROM (SELECT 1 FROM {unordered} LIMIT 10001) AS found")
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
