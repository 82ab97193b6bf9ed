"""A backup is a copy as of one moment; a restored system continues from exactly that moment."""

import json
import sqlite3
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from sqlalchemy import select, text, update

from app.cli.main import main
from app.database.engine import Database, make_engine
from app.domain.errors import LeaseLost
from app.domain.lifecycle.states import JobState
from app.migrations.runner import downgrade
from app.migrations.versioning import HEAD, revision_of
from app.models import Attempt, AuditEntry, Job, Lease, Reservation
from app.models.base import utc_now
from app.services.attempts import leases
from app.services.operations.backups import after_restore
from app.services.operations.backups import database as whole
from app.services.operations.backups.failures import BackupFailed
from config.settings import DatabaseSettings
from tests.builders.factories import make_attempt, make_checkpoint, make_job, make_node

pytestmark = [pytest.mark.both_databases, pytest.mark.new_database]

NOW = utc_now()


@pytest.fixture
def restore(database: Database, database_url: str) -> Callable[..., whole.Restored]:
    def restored(copy: Path, **changes: Any) -> whole.Restored:
        database.close()  # what an idle process of ours has open counts as use
        now = NOW + changes.get("later", timedelta(0))
        return whole.restore(DatabaseSettings(url=database_url), copy, actor="test", now=now)

    return restored


def jobs(db: Database) -> set[str]:
    with db.read() as session:
        return set(session.scalars(select(Job.id)))


def add_job(db: Database) -> str:
    with db.write() as session:
        return make_job(session).id


# ---- making one


def test_a_backup_holds_what_was_there_and_can_be_put_back(
    database: Database, tmp_path: Path, restore: Callable[..., whole.Restored]
) -> None:
    before = add_job(database)
    written = whole.backup(database, tmp_path / "copy")
    add_job(database)

    done = restore(tmp_path / "copy")

    assert written == (tmp_path / "copy").stat().st_size
    assert (tmp_path / "copy").stat().st_mode & 0o777 == 0o600
    assert jobs(database) == {before}
    assert done.revision == HEAD


def test_a_backup_overwrites_nothing(database: Database, tmp_path: Path) -> None:
    (tmp_path / "copy").write_text("the last one")

    with pytest.raises(BackupFailed, match="already exists"):
        whole.backup(database, tmp_path / "copy")

    assert (tmp_path / "copy").read_text() == "the last one"


def test_a_backup_that_cannot_be_written_leaves_nothing(database: Database, tmp_path: Path) -> None:
    with pytest.raises(BackupFailed):
        whole.backup(database, tmp_path / "no-such-folder" / "copy")

    assert list(tmp_path.glob("*incomplete*")) == []


def test_a_backup_is_made_while_others_write(database: Database, tmp_path: Path) -> None:
    first = add_job(database)
    with database.write() as session:
        make_job(session)
        session.flush()

        whole.backup(database, tmp_path / "copy")

    assert _ids_in(tmp_path / "copy", database) in ({first}, set())


def _ids_in(copy: Path, database: Database) -> set[str]:
    """Of a copy in SQLite; the other kind can't be looked into without a server."""
    if database.engine.dialect.name != "sqlite":
        return set()
    connection = sqlite3.connect(copy)
    ids = {str(row[0]) for row in connection.execute("SELECT id FROM job")}
    connection.close()
    return ids


# ---- putting one back


def test_what_was_there_before_is_kept_aside(
    database: Database, tmp_path: Path, restore: Callable[..., whole.Restored]
) -> None:
    whole.backup(database, tmp_path / "copy")
    later = add_job(database)

    done = restore(tmp_path / "copy")

    if database.engine.dialect.name == "sqlite":
        assert _ids_in(Path(done.aside), database) == {later}
    else:
        with database.engine.connect() as connection:
            kept = connection.execute(text(f'SELECT id FROM "{done.aside}".job')).scalars().all()
        assert kept == [later]


def test_restoring_again_and_backing_up_after_it_works(
    database: Database, tmp_path: Path, restore: Callable[..., whole.Restored]
) -> None:
    job_id = add_job(database)
    whole.backup(database, tmp_path / "copy")
    restore(tmp_path / "copy")
    whole.backup(database, tmp_path / "second")

    restore(tmp_path / "second", later=timedelta(seconds=5))

    assert jobs(database) == {job_id}


def test_a_file_that_is_no_backup_changes_nothing(
    database: Database, tmp_path: Path, restore: Callable[..., whole.Restored]
) -> None:
    job_id = add_job(database)
    (tmp_path / "nonsense").write_bytes(b"this is no database at all, although it is rather long" * 100)

    for name in ("nonsense", "missing"):
        with pytest.raises(BackupFailed):
            restore(tmp_path / name)

    assert jobs(database) == {job_id}


def test_a_damaged_backup_changes_nothing(
    database: Database, tmp_path: Path, restore: Callable[..., whole.Restored]
) -> None:
    job_id = add_job(database)
    whole.backup(database, tmp_path / "copy")
    whole_copy = (tmp_path / "copy").read_bytes()
    (tmp_path / "copy").write_bytes(whole_copy[: len(whole_copy) // 2])

    with pytest.raises(BackupFailed):
        restore(tmp_path / "copy")

    assert jobs(database) == {job_id}


def test_a_restore_over_a_database_in_use_is_refused(database: Database, database_url: str, tmp_path: Path) -> None:
    job_id = add_job(database)
    whole.backup(database, tmp_path / "copy")

    with database.read() as session:
        session.execute(text("SELECT 1"))
        with pytest.raises(BackupFailed, match="use"):
            whole.restore(DatabaseSettings(url=database_url), tmp_path / "copy", actor="test", now=NOW)

    assert jobs(database) == {job_id}


def test_an_older_backup_is_brought_up_to_date(
    database: Database, tmp_path: Path, restore: Callable[..., whole.Restored]
) -> None:
    job_id = add_job(database)
    downgrade(database.engine, "0003")
    whole.backup(database, tmp_path / "copy")

    restore(tmp_path / "copy")

    with database.engine.connect() as connection:
        assert revision_of(connection) == HEAD
    assert jobs(database) == {job_id}


def test_a_backup_of_a_newer_release_is_refused(
    database: Database, tmp_path: Path, restore: Callable[..., whole.Restored]
) -> None:
    with database.engine.begin() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))
    whole.backup(database, tmp_path / "copy")

    with pytest.raises(BackupFailed, match="9999"):
        restore(tmp_path / "copy")


def test_a_broken_sqlite_file_goes_aside_with_its_log(sqlite_url: str, tmp_path: Path) -> None:
    db = Database().bind(make_engine(sqlite_url))
    job_id = add_job(db)
    whole.backup(db, tmp_path / "copy")
    db.close()
    path = tmp_path / "trainyard.db"
    path.write_bytes(b"broken" * 1000)
    path.with_name("trainyard.db-wal").write_bytes(b"a log of what was")

    done = whole.restore(DatabaseSettings(url=sqlite_url), tmp_path / "copy", actor="test", now=NOW)

    assert jobs(db) == {job_id}
    assert Path(done.aside).read_bytes().startswith(b"broken")
    db.close()


# ---- settling


def test_what_ran_goes_back_to_the_queue_without_using_a_retry(database: Database) -> None:
    with database.write() as session:
        job = make_job(session, state=JobState.TRAINING, max_retries=0, current_step=7)
        checkpoint = make_checkpoint(session, job, step=5)
        job.latest_checkpoint_id = checkpoint.id
        lease = make_attempt(session, job, make_node(session))

    assert after_restore.settle(database, actor="test") == 1

    with database.read() as session:
        after = session.get_one(Job, job.id)
        assert (after.state, after.retries_used) == (JobState.QUEUED, 0)
        assert after.latest_checkpoint_id == checkpoint.id
        assert session.get_one(Lease, lease.id).released_at is not None
        assert session.scalars(select(Reservation)).all() == []
        assert session.get_one(Attempt, (job.id, 1)).ended_at is not None
        assert session.scalars(select(AuditEntry.action).where(AuditEntry.action == "db.restore")).all()


def test_a_supervisor_of_the_forgotten_time_can_change_nothing(database: Database) -> None:
    with database.write() as session:
        job = make_job(session, state=JobState.TRAINING)
        lease = make_attempt(session, job, make_node(session))
        fence_then = job.fence + 3  # given out after the backup, and lost with it

    after_restore.settle(database, actor="test")

    with pytest.raises(LeaseLost):
        leases.renew(database, lease_id=lease.id, fence=lease.fence, ran_seconds=1.0)
    with database.read() as session:
        assert session.get_one(Job, job.id).fence > fence_then + 1000


def test_ended_and_waiting_jobs_stay_as_they_are(database: Database) -> None:
    with database.write() as session:
        states = (JobState.PENDING, JobState.QUEUED, JobState.PAUSED, JobState.COMPLETED)
        ids = [make_job(session, state=state).id for state in states]

    assert after_restore.settle(database, actor="test") == 0

    with database.read() as session:
        assert [session.get_one(Job, job_id).state for job_id in ids] == list(states)


# ---- the commands


@pytest.fixture
def run(database: Database, database_url: str, tmp_path: Path) -> Callable[..., Result]:
    environment = {"TRAINYARD_DATA_DIR": str(tmp_path / "data"), "TRAINYARD_DATABASE_URL": database_url}

    def command(*arguments: str, answer: str = "") -> Result:
        database.close()
        return CliRunner().invoke(main, ["db", *arguments], env=environment, input=answer)

    return command


def test_commands_back_up_and_restore(database: Database, tmp_path: Path, run: Callable[..., Result]) -> None:
    before = add_job(database)
    copy = str(tmp_path / "copy")

    assert json.loads(run("backup", copy, "--json").stdout)["size_bytes"] > 0
    add_job(database)
    refused = run("restore", copy, answer="n\n")
    assert (refused.exit_code, len(jobs(database))) == (1, 2)
    answer = run("restore", copy, answer="y\n")

    assert answer.exit_code == 0, answer.output
    assert "Previous database:" in answer.stdout
    assert jobs(database) == {before}
    assert json.loads(run("restore", copy, "--yes", "--json").stdout)["requeued_jobs"] == 0


def test_failures_are_reported_in_one_line(tmp_path: Path, run: Callable[..., Result]) -> None:
    answer = run("restore", str(tmp_path / "missing"), "--yes")

    assert answer.exit_code == 1
    assert answer.stderr.startswith("Error: ")
    assert "Traceback" not in answer.output


def test_settle_command_requeues_running_jobs(database: Database, run: Callable[..., Result]) -> None:
    with database.write() as session:
        make_attempt(session, make_job(session, state=JobState.TRAINING), make_node(session))

    assert json.loads(run("settle", "--yes", "--json").stdout) == {"requeued_jobs": 1}


# ---- check and export


def test_check_finds_nothing_wrong_with_what_is_right(database: Database, run: Callable[..., Result]) -> None:
    with database.write() as session:
        job = make_job(session, state=JobState.TRAINING)
        make_attempt(session, job, make_node(session))
        job.latest_checkpoint_id = make_checkpoint(session, job).id

    answer = run("check", "--json")

    assert json.loads(answer.stdout) == {"ok": True, "problems": []}


def test_check_names_what_does_not_fit(database: Database, run: Callable[..., Result]) -> None:
    with database.write() as session:
        job = make_job(session, state=JobState.TRAINING, latest_checkpoint_id="ckpt-gone")
        make_attempt(session, job, make_node(session))
        session.flush()
        session.execute(update(Lease).values(released_at=NOW))
        session.execute(update(Job).values(attempt=7))

    answer = run("check")

    assert answer.exit_code == 1
    lines = answer.stdout.splitlines()
    assert [line.partition(":")[0] for line in lines] == [
        "jobs run without a lease",
        "jobs have devices without a lease",
        "jobs have a wrong attempt count",
        "jobs refer to a foreign or deleted checkpoint",
    ]
    assert all(job.id in line for line in lines)


def test_export_gives_every_row_and_no_secret(database: Database, run: Callable[..., Result]) -> None:
    assert run("init").exit_code == 0
    job_id = add_job(database)

    lines = [json.loads(line) for line in run("export").stdout.splitlines()]

    tables = [line["table"] for line in lines]
    assert tables.index("project") < tables.index("job")
    assert next(line["id"] for line in lines if line["table"] == "job") == job_id
    key = next(line for line in lines if line["table"] == "api_key")
    assert {"id", "prefix", "role"} <= set(key)
    assert not {name for name in key if "hash" in name or "sealed" in name}


def test_export_of_some_tables_into_a_file(database: Database, tmp_path: Path, run: Callable[..., Result]) -> None:
    add_job(database)

    assert run("export", "queue", "job", "--out", str(tmp_path / "rows")).exit_code == 0

    lines = [json.loads(line) for line in (tmp_path / "rows").read_text().splitlines()]
    assert [line["table"] for line in lines] == ["queue", "job"]
    refused = run("export", "jobs")
    assert (refused.exit_code, "known: " in refused.stderr) == (1, True)
