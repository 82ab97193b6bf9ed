"""The chain of revisions makes exactly the tables of the models, on both databases, and can be undone."""

import threading
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import Engine, inspect, text
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from app.database.engine import make_engine
from app.migrations import runner
from app.migrations.versioning import HEAD, SchemaNotReady, is_current, revision_of, wait_until_current
from app.models import Base, Project, WebhookDelivery
from tests.builders.factories import make_webhook
from tests.systems.servers import PostgresServer

# As an earlier version left them.
STORED_PLACES = (
    "INSERT INTO project (name, created_at) VALUES ('default', '2026-01-01')",
    "INSERT INTO queue (name, created_at) VALUES ('gpu', '2026-01-01')",
)
STORED_JOB = """INSERT INTO job (id, project, created_by, name, labels, spec, sealed_secrets, "foreign", training_type,
        framework, queue, priority, max_retries, status, status_reason, pending_reason, version, mirrored_version,
        fence, event_seq, metric_seq, requested_reason, requested_by, pause_saves, checkpoint_requests, attempt,
        retries_used, node_names, progress, current_step, current_epoch, tokens, elapsed_seconds, gpu_seconds,
        latest_metrics, created_at, updated_at)
    VALUES (:id, 'default', '', 'a', '{}', '{}', '', '{}', 'SFT', 'HF_TRAINER', 'gpu', 5, 3, :status, '', '', 1, 0,
        0, 1, 0, '', '', true, 0, 0, 0, '[]', 0, 0, 0, 0, 0, 0, '{}', '2026-05-01 10:00:00.123', '2026-05-01')"""
STORED_LABEL = "INSERT INTO job_label (job_id, key, value) VALUES (:id, 'team', 'a')"


@pytest.fixture(params=["sqlite", "postgresql"])
def empty_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path / 'empty.db'}"
        return
    server: PostgresServer = request.getfixturevalue("postgres_server")
    name = f"empty_{time.monotonic_ns()}"
    server.execute(f"CREATE DATABASE {name}")
    yield server.url(name)
    server.execute(f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture
def engine(empty_url: str) -> Iterator[Engine]:
    engine = make_engine(empty_url)
    yield engine
    engine.dispose()


@pytest.fixture
def migrated(database_url: str) -> Iterator[Engine]:
    """On a copy of a database that was upgraded to the last revision."""
    engine = make_engine(database_url)
    yield engine
    engine.dispose()


def test_the_head_that_the_quick_check_knows_is_the_last_revision() -> None:
    assert runner.scripts().get_current_head() == HEAD


@pytest.mark.both_databases
@pytest.mark.new_database
def test_migrations_and_models_agree(migrated: Engine) -> None:
    with migrated.connect() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True, "compare_server_default": True})
        assert compare_metadata(context, Base.metadata) == []


@pytest.mark.both_databases
@pytest.mark.new_database
def test_migrations_make_the_same_constraints_as_the_models(migrated: Engine) -> None:
    shape = _shape(migrated)
    Base.metadata.drop_all(migrated)
    Base.metadata.create_all(migrated)

    assert _shape(migrated) == shape


@pytest.mark.both_databases
@pytest.mark.new_database
def test_downgrade_leaves_nothing(migrated: Engine) -> None:
    runner.downgrade(migrated, "base")

    assert set(inspect(migrated).get_table_names()) <= {"alembic_version"}
    with migrated.connect() as connection:
        assert revision_of(connection) is None


@pytest.mark.both_databases
@pytest.mark.new_database
def test_webhooks_of_emails_go_with_their_recipients(migrated: Engine) -> None:
    with Session(migrated.execution_options(writes=True)) as session, session.begin():
        session.merge(Project(name="default"))
        for name in ("json", "email"):
            hook = make_webhook(session, format=name)
            session.add(
                WebhookDelivery(
                    id=f"dlv-{name}", webhook_id=hook.id, event_id="evt-1", event_type="job.status", payload={}
                )
            )

    runner.downgrade(migrated, "0044")

    assert [row.format for row in _rows(migrated, "webhook")] == ["json"]
    assert [row.id for row in _rows(migrated, "webhook_delivery")] == ["dlv-json"]


@pytest.mark.both_databases
@pytest.mark.new_database
def test_upgrading_twice_changes_nothing(migrated: Engine) -> None:
    before = _shape(migrated)

    runner.upgrade(migrated)

    assert _shape(migrated) == before


def test_processes_that_start_together_migrate_once(empty_url: str) -> None:
    engines = [make_engine(empty_url) for _ in range(4)]
    failures: list[BaseException] = []

    def upgrade(engine: Engine) -> None:
        try:
            runner.upgrade(engine)
        except BaseException as error:  # noqa: BLE001 – a thread's failure must reach the test
            failures.append(error)

    threads = [threading.Thread(target=upgrade, args=(engine,)) for engine in engines]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert failures == []
    assert is_current(engines[0])
    for engine in engines:
        engine.dispose()


@pytest.mark.both_databases
@pytest.mark.new_database
def test_a_database_of_a_newer_version_is_refused_by_name(migrated: Engine) -> None:
    with migrated.execution_options(writes=True).begin() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))

    with pytest.raises(SchemaNotReady, match=r"9999.*newer version"):
        runner.upgrade(migrated)


def test_labels_of_stored_jobs_learn_what_lists_filter_by(engine: Engine) -> None:
    ends = {"QUEUED": None, "TRAINING": None, "COMPLETED": "COMPLETED", "PREEMPTED": "PREEMPTED"}
    jobs = {f"job-{number}": status for number, status in enumerate(ends, start=1)}
    runner.upgrade(engine, "0004")
    with engine.execution_options(writes=True).begin() as connection:
        for statement in STORED_PLACES:
            connection.execute(text(statement))
        for job_id, status in jobs.items():
            connection.execute(text(STORED_JOB), {"id": job_id, "status": status})
            connection.execute(text(STORED_LABEL), {"id": job_id})

    runner.upgrade(engine)
    learnt = _rows(engine, "job_label")
    runner.downgrade(engine, "0004")

    created = {job.id: job.created_at for job in _rows(engine, "job")}
    for row in learnt:
        assert (row.key, row.value) == ("team", "a")
        assert (row.project, row.training_type, row.framework, row.queue) == ("default", "SFT", "HF_TRAINER", "gpu")
        assert row.created_at == created[row.job_id]
    assert {row.job_id: row.ended_as for row in learnt} == {job_id: ends[status] for job_id, status in jobs.items()}
    assert sorted(tuple(row) for row in _rows(engine, "job_label")) == [(job_id, "team", "a") for job_id in jobs]


def test_projects_of_earlier_versions_get_numbers_the_default_one_the_first(engine: Engine) -> None:
    runner.upgrade(engine, "0023")
    with engine.execution_options(writes=True).begin() as connection:
        for name, day in (("late", 3), ("default", 2), ("early", 1)):
            made = f"INSERT INTO project (name, created_at) VALUES ('{name}', '2026-01-0{day}')"
            connection.execute(text(made))

    runner.upgrade(engine)
    numbered = {row.name: row.number for row in _rows(engine, "project")}
    runner.downgrade(engine, "0023")

    assert numbered == {"default": 1, "early": 2, "late": 3}
    assert sorted(row.name for row in _rows(engine, "project")) == ["default", "early", "late"]


def test_serving_replicas_keep_the_version_that_knows_them(engine: Engine) -> None:
    runner.upgrade(engine, "0004")
    with engine.execution_options(writes=True).begin() as connection:
        for statement in STORED_PLACES:
            connection.execute(text(statement))
        connection.execute(text(STORED_JOB), {"id": "job-1", "status": "PREPARING"})
        connection.execute(text(STORED_LABEL), {"id": "job-1"})
    runner.upgrade(engine)
    _change(engine, "UPDATE job SET status = 'SERVING', requested = 'drain'")

    with pytest.raises(SchemaNotReady, match="pause the services"):
        runner.downgrade(engine, "0032")

    _change(engine, "UPDATE job SET status = 'CANCELLED'")
    runner.downgrade(engine, "0032")
    assert [(row.status, row.requested) for row in _rows(engine, "job")] == [("CANCELLED", None)]
    with pytest.raises(IntegrityError):
        _change(engine, "UPDATE job SET status = 'SERVING'")
    with pytest.raises(IntegrityError):
        _change(engine, "UPDATE job SET requested = 'drain'")


def test_a_failed_migration_changes_nothing(engine: Engine) -> None:
    with engine.execution_options(writes=True).begin() as connection:
        connection.execute(text("CREATE TABLE lease (id INTEGER)"))  # in the way of a later table

    with pytest.raises(Exception, match="lease"):
        runner.upgrade(engine)

    assert set(inspect(engine).get_table_names()) == {"lease"}


def test_waiting_for_a_missing_schema_says_what_to_do(engine: Engine) -> None:
    with pytest.raises(SchemaNotReady, match="trainyard db upgrade"):
        wait_until_current(engine, seconds=0.1)


def _change(engine: Engine, statement: str) -> None:
    with engine.execution_options(writes=True).begin() as connection:
        connection.execute(text(statement))


def _rows(engine: Engine, table: str) -> list[Any]:
    with engine.connect() as connection:
        return list(connection.execute(text(f"SELECT * FROM {table}")))


def _shape(engine: Engine) -> dict[str, object]:
    """Everything that inspection reports about the tables, except their order."""
    seen = inspect(engine)
    shape: dict[str, object] = {}
    for table in set(seen.get_table_names()) - {"alembic_version"}:
        shape[table] = {
            "columns": {c["name"]: (str(c["type"]), c["nullable"], c["default"]) for c in seen.get_columns(table)},
            "primary key": seen.get_pk_constraint(table),
            "foreign keys": _by_name(seen.get_foreign_keys(table)),
            "indexes": _by_name(seen.get_indexes(table)),
            "unique": _by_name(seen.get_unique_constraints(table)),
            "checks": _by_name(seen.get_check_constraints(table)),
        }
    return shape


def _by_name(constraints: Iterable[Any]) -> list[str]:
    return sorted(str(_plain(constraint)) for constraint in constraints)


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(part) for key, part in sorted(value.items())}
    return value if isinstance(value, list) else str(value)
