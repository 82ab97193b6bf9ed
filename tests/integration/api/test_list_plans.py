"""How the databases look for a page of a list: by an index, whatever is asked for, never by reading a table."""

import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
from sqlalchemy import event

from app.database.engine import Database, make_engine
from app.domain.lifecycle.states import JobState
from app.security.permissions import Role
from app.services.lifecycle import audit, labels
from app.services.requests.pagination import COUNT_LIMIT
from benchmarks import reads
from tests.builders.factories import make_document, make_job, make_queue
from tests.systems.apps import Api

Served = tuple[Api, dict[str, str]]
JOBS = 20_000
SCAN = re.compile(r"Seq Scan on (?:job|job_label|audit_entry)\b.*rows=(\d+)")
QUESTIONS = [
    *((f"/v1/jobs?{urlencode(query)}", name) for name, query in reads.QUESTIONS.items()),
    *((f"/v1/audit?{urlencode(query)}", name) for name, query in reads.TRAIL.items()),
]


@pytest.fixture(scope="module")
def postgres(
    postgres_server: Any, migrated_postgres: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Served]:
    """What the benchmark measures, in small."""
    postgres_server.execute(f"CREATE DATABASE plans TEMPLATE {migrated_postgres}")
    db = Database().bind(make_engine(postgres_server.url("plans")))
    api = Api(db, tmp_path_factory.mktemp("plans"))
    for number in range(reads.PROJECTS):
        api.make_key(Role.ADMIN, f"project-{number}")
    with db.write() as session:
        make_queue(session, "gpu")
    reads.fill(db, 1, JOBS)
    yield api, {"super admin": api.key, "project": api.make_key(Role.ADMIN, "project-3")}
    db.close()
    postgres_server.execute("DROP DATABASE plans WITH (FORCE)")


@pytest.fixture(scope="module")
def sqlite(migrated_sqlite: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    folder = tmp_path_factory.mktemp("plans")
    shutil.copyfile(migrated_sqlite, folder / "trainyard.db")
    db = Database().bind(make_engine(f"sqlite:///{folder / 'trainyard.db'}"))
    api = Api(db, folder)
    with db.write() as session:
        make_queue(session, "gpu")
        for number in range(40):
            state = (JobState.COMPLETED, JobState.FAILED, JobState.CANCELLED)[number % 3]
            document = make_document(name=f"run-{number}")
            job = make_job(session, state=state, document=document, labels={"team": f"team-{number % 10}"})
            session.add_all(labels.rows(job))
            audit.record(session, actor="key-77", action="job.submit", project="default", target=job.id)
    yield api
    db.close()


@pytest.mark.parametrize("who", ["super admin", "project"])
@pytest.mark.parametrize("path", [pytest.param(path, id=name) for path, name in QUESTIONS])
def test_postgresql_reads_no_table_from_end_to_end(postgres: Served, path: str, who: str) -> None:
    api, keys = postgres

    plans = explained(api, path, keys[who], "EXPLAIN")

    assert plans
    # Where nearly all rows fit, reading them ends at the limit of what is counted.
    assert [plan for plan in plans if any(int(rows) < COUNT_LIMIT for rows in SCAN.findall(plan))] == []


@pytest.mark.parametrize("path", [pytest.param(path, id=name) for path, name in QUESTIONS])
def test_sqlite_reads_no_table_from_end_to_end(sqlite: Api, path: str) -> None:
    plans = explained(sqlite, path, sqlite.key, "EXPLAIN QUERY PLAN")

    assert plans
    assert [plan for plan in plans if re.search(r"SCAN (job|job_label|audit_entry)\w*$", plan, re.MULTILINE)] == []


@pytest.mark.parametrize("prefix", ["run-1", "run-12"])
def test_names_are_looked_up_by_their_beginning(postgres: Served, prefix: str) -> None:
    api, keys = postgres

    plans = explained(api, f"/v1/jobs?name={prefix}&order_by=name", keys["super admin"], "EXPLAIN")

    assert all("using ix_job_name" in plan for plan in plans if "name >=" in plan)
    assert any("name >=" in plan for plan in plans)


def explained(api: Api, path: str, key: str, explain: str) -> list[str]:
    """The plan of every query that the list sends for its page."""
    with _listening(api.db) as sent:
        api.get(path, key=key)
    with api.db.engine.connect() as connection:
        return [
            "\n".join(" ".join(map(str, row)) for row in connection.exec_driver_sql(f"{explain} {statement}", values))
            for statement, values in sent
        ]


@contextmanager
def _listening(db: Database) -> Iterator[list[tuple[str, Any]]]:
    """Fills with the queries of the tables that are listed, and their values."""
    sent: list[tuple[str, Any]] = []

    def note(_connection: Any, _cursor: Any, statement: str, values: Any, *_: Any) -> None:
        if re.search(r"FROM (job|job_label|audit_entry)\b", statement):
            sent.append((statement, values))

    event.listen(db.engine, "before_cursor_execute", note)
    try:
        yield sent
    finally:
        event.remove(db.engine, "before_cursor_execute", note)
