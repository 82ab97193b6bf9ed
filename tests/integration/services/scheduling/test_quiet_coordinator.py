"""A coordinator's threads while nothing changes: what they ask, and what they find without a message."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text

from app.database.engine import Database
from app.domain.lifecycle.states import JobState
from app.migrations.versioning import HEAD, VERSION_TABLE
from app.models import Job, Node
from app.models.base import utc_now
from app.services.preflight import admission
from app.services.scheduling import planning_loop
from config.settings import load_settings
from tasks.background import coordination, own_admissions
from tasks.background.coordination import Coordination
from tasks.celery_app import SubmittedJob, build_app
from tests.builders.factories import make_document, make_job, make_node
from tests.builders.statements import statements
from tests.systems.system import wait_for

pytestmark = pytest.mark.both_databases

# Reading the counter, renewing the leadership, and the nodes' heartbeats: by the table they name.
QUIET = ("FROM change", "UPDATE process_beat", "FROM node", "FROM pg_locks")
READS_IN_A_ROW = 3


@pytest.fixture
def variables(tmp_path: Path, database_url: str, redis_url: str) -> dict[str, str]:
    return {
        "TRAINYARD_DATA_DIR": str(tmp_path),
        "TRAINYARD_DATABASE_URL": database_url,
        "TRAINYARD_BROKER_URL": redis_url,
        "TRAINYARD_NODE_LOST_SECONDS": "600",  # its nodes have no heartbeat
    }


@pytest.fixture
def coordinating(variables: dict[str, str]) -> Callable[[], object]:
    @contextmanager
    def run() -> Iterator[Database]:
        app = build_app(load_settings(variables))
        own = Coordination(app, "coordinator@here", consume=lambda _queue: None)
        own.start()
        try:
            yield app.runtime.database
        finally:
            own.stop()
            app.runtime.close()
            app.close()

    return run


def waiting_job(db: Database, **columns: Any) -> str:
    with db.write() as session:
        return make_job(session, **columns).id


def state(db: Database, job_id: str) -> JobState:
    with db.read() as session:
        return session.get_one(Job, job_id).state


def is_quiet(sent: list[str]) -> bool:
    """Whether between the latest readings of the counter nothing else was asked."""
    readings = [index for index, statement in enumerate(sent) if "FROM change" in statement]
    if len(readings) < READS_IN_A_ROW:
        return False
    return all(any(table in statement for table in QUIET) for statement in sent[readings[-READS_IN_A_ROW] :])


@pytest.mark.long
def test_while_nothing_changes_only_the_counter_is_read(database: Database, coordinating) -> None:
    for _ in range(30):
        waiting_job(database)

    with coordinating() as its_own, statements(its_own) as sent:
        wait_for(lambda: is_quiet(sent), seconds=20, what="nothing more to ask about jobs that can't start")


@pytest.mark.long
def test_a_change_is_seen_without_any_message(database: Database, coordinating) -> None:
    job_id = waiting_job(database)
    with coordinating() as its_own, statements(its_own) as sent:
        wait_for(lambda: is_quiet(sent), seconds=20, what="quiet")

        with database.write() as session:
            make_node(session, "n1")

        wait_for(lambda: state(database, job_id) is JobState.SCHEDULING, seconds=5, what="dispatched")


@pytest.mark.long
def test_a_change_that_was_not_counted_is_found_all_the_same(database: Database, coordinating, monkeypatch) -> None:
    monkeypatch.setattr(planning_loop, "LONGEST_REST_SECONDS", 3.0)
    monkeypatch.setattr(planning_loop, "LONGEST_UNCHANGED_SECONDS", 3.0)  # however long a pass takes
    job_id = waiting_job(database)
    with database.write() as session:
        make_node(session, "n1", state="drained")
    with coordinating() as its_own, statements(its_own) as sent:
        wait_for(lambda: is_quiet(sent), seconds=20, what="quiet")

        with database.write() as session:
            if database.engine.dialect.name == "postgresql":
                session.execute(text("SET LOCAL session_replication_role = replica"))
            else:
                session.execute(text("DROP TRIGGER note_node_update"))
            session.get_one(Node, "n1").state = "ready"

        wait_for(lambda: state(database, job_id) is JobState.SCHEDULING, seconds=20, what="dispatched")


@pytest.mark.long
def test_a_job_that_rests_after_a_failure_starts_on_time(database: Database, coordinating) -> None:
    with database.write() as session:
        make_node(session, "n1")
    job_id = waiting_job(database, not_before_at=utc_now() + timedelta(seconds=6))
    with coordinating() as its_own, statements(its_own) as sent:
        wait_for(lambda: is_quiet(sent), seconds=6, what="quiet until its time")

        wait_for(
            lambda: state(database, job_id) is JobState.SCHEDULING,
            seconds=15,
            what="dispatched before the next full poll",
        )


@pytest.mark.long
def test_a_schema_of_another_version_is_waited_for_and_named(
    database: Database, coordinating, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    broken = waiting_job(database, state=JobState.PENDING, document={**make_document(), "data_config": []})
    job_id = waiting_job(database, state=JobState.PENDING)
    monkeypatch.setattr(coordination, "SCHEMA_PATIENCE_SECONDS", 0.1)
    with database.write() as session:
        session.execute(text(f"UPDATE {VERSION_TABLE} SET version_num = '0001'"))

    with coordinating():
        wait_for(lambda: "revision 0001" in caplog.text, seconds=20, what="why it waits")
        assert f"needs {HEAD}; run `trainyard db upgrade`" in caplog.text
        assert state(database, job_id) is JobState.PENDING
        with database.write() as session:
            session.execute(text(f"UPDATE {VERSION_TABLE} SET version_num = '{HEAD}'"))
        wait_for(lambda: state(database, job_id) is not JobState.PENDING, seconds=20, what="its admission")
        assert caplog.text.count(f"admission failed and will be retried: {broken}") == 1
        assert state(database, broken) is JobState.PENDING
        later = waiting_job(database, state=JobState.PENDING)
        wait_for(lambda: state(database, later) is not JobState.PENDING, seconds=20, what="that of the next job")
        assert "admission failed and will be retried: TypeError" not in caplog.text, "the round has not failed"


def test_while_a_check_hangs_messages_announce_what_the_leader_submits(
    variables: dict[str, str], database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    job_id, rung = waiting_job(database, state=JobState.PENDING), list[tuple[Any, ...]]()
    app = build_app(load_settings(variables))
    own = Coordination(app, "coordinator@here", consume=lambda _queue: None)
    monkeypatch.setattr(own_admissions, "ROUND_SECONDS", 0.0)
    monkeypatch.setattr(app.runtime.dispatcher, "_ring", lambda message: rung.append(message.arguments))

    def hangs(*_: Any, **__: Any) -> int:
        own._expect_submitted([SubmittedJob(job_id, "default", 5)])
        return 0

    assert own._leader_lease.acquire(0.0)
    with monkeypatch.context() as hanging:
        hanging.setattr(admission, "admit_waiting", hangs)
        own._admit()
    assert rung == [(job_id,)]
    own._admit()
    assert state(database, job_id) is JobState.QUEUED
    own._expect_submitted([SubmittedJob(job_id, "default", 5)])
    assert rung == [(job_id,)], "it admits again itself"
    app.runtime.close()
    app.close()
