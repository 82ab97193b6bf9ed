"""Retention deletes what exceeds the configured age or amount, and never what is still needed."""

import json
from collections.abc import Callable
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from sqlalchemy import func, select

from app.cli.main import main
from app.database.engine import Database
from app.domain.lifecycle.events import EventType
from app.domain.lifecycle.states import JobState
from app.models import AuditEntry, Checkpoint, IdempotentReply, Job, JobEvent, Metric, MetricSummary
from app.models.base import utc_now
from app.services.lifecycle import transitions
from app.services.operations import bootstrap
from app.services.operations.retention import context, rows, rules
from app.storage.object_keys import attempts_key, checkpoint_key, logs_key
from app.storage.storage import Storage
from config.settings import Settings, load_settings
from tests.builders.factories import make_checkpoint, make_job
from tests.systems.celery_processes import CeleryWorld
from tests.systems.system import wait_for

pytestmark = pytest.mark.both_databases

NOW = utc_now()
OLD, YOUNG = NOW - timedelta(days=40), NOW - timedelta(days=2)

Configure = Callable[..., Settings]


@pytest.fixture
def configure(database_url: str, tmp_path: Path) -> Configure:
    def settings(**retention: Any) -> Settings:
        variables = {f"TRAINYARD_RETENTION_{name.upper()}": str(value) for name, value in retention.items()}
        places = {"TRAINYARD_DATA_DIR": str(tmp_path / "data"), "TRAINYARD_DATABASE_URL": database_url}
        return load_settings({**places, "TRAINYARD_SECURITY_SECRET_KEY": "x" * 43 + "=", **variables})

    return settings


@pytest.fixture
def storage(configure: Configure) -> Storage:
    return Storage(configure().storage.url)


def ended(session: Any, *, at: Any = OLD, **columns: Any) -> Job:
    return make_job(session, state=JobState.COMPLETED, finished_at=at, **columns)


def pruned(db: Database, settings: Settings, *, dry_run: bool = False) -> dict[str, tuple[int, int, int]]:
    """What → (count, bytes, still needed)."""
    found = rules.prune(db, settings, actor="test", dry_run=dry_run, now=NOW)
    return {rule.what: (one.count, one.bytes, one.kept) for rule, one in found}


def count(db: Database, model: Any) -> int:
    with db.read() as session:
        return session.scalar(select(func.count()).select_from(model)) or 0


def test_nothing_goes_unless_asked_for(database: Database, configure: Configure) -> None:
    with database.write() as session:
        make_checkpoint(session, ended(session, at=NOW - timedelta(days=10_000)))

    assert pruned(database, configure()) == {"idempotency answers": (0, 0, 0)}
    assert (count(database, Job), count(database, Checkpoint)) == (1, 1)


def test_every_setting_has_its_rule() -> None:
    asked = {rule.setting for rule in rules.RULES if rule.setting}

    fields = set(load_settings({}).retention.__dataclass_fields__)
    assert asked == fields - {"enabled"}


# ---- jobs


def test_old_jobs_go_with_their_rows_and_files(database: Database, configure: Configure, storage: Storage) -> None:
    with database.write() as session:
        old, young, living = ended(session), ended(session, at=YOUNG), make_job(session)
        make_checkpoint(session, old)
        add_metrics(session, old, points=3)
    for job in (old, young, living):
        storage.write(f"jobs/{job.id}/artifacts/model.bin", b"12345")

    assert pruned(database, configure(jobs_days=30))["jobs"] == (1, 5, 0)

    with database.read() as session:
        assert set(session.scalars(select(Job.id))) == {young.id, living.id}
    assert set(storage.names("jobs")) == {young.id, living.id}
    assert (count(database, Metric), count(database, Checkpoint)) == (0, 0)


def test_a_job_from_whose_checkpoint_a_living_one_starts_stays(database: Database, configure: Configure) -> None:
    with database.write() as session:
        old = ended(session)
        child = make_job(session, resume_checkpoint_id=make_checkpoint(session, old).id)

    assert pruned(database, configure(jobs_days=30))["jobs"] == (0, 0, 1)
    with database.write() as session:
        transitions.transition(session, session.get_one(Job, child.id), JobState.CANCELLED, actor="test")
    assert pruned(database, configure(jobs_days=30))["jobs"][0] == 1


def test_children_outlive_their_parent(database: Database, configure: Configure) -> None:
    with database.write() as session:
        parent = ended(session)
        child = ended(session, at=YOUNG, parent_job_id=parent.id)

    pruned(database, configure(jobs_days=30))

    with database.read() as session:
        assert session.get_one(Job, child.id).parent_job_id is None


def test_more_jobs_than_are_looked_at_once_all_go(
    database: Database, configure: Configure, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(context, "JOBS_AT_ONCE", 2)
    with database.write() as session:
        for _ in range(5):
            ended(session)

    assert pruned(database, configure(jobs_days=30))["jobs"] == (5, 0, 0)


# ---- checkpoints


def stored(session: Any, storage: Storage, job: Job, **columns: Any) -> Checkpoint:
    checkpoint = make_checkpoint(session, job, **columns)
    storage.write(f"{checkpoint_key(job.id, checkpoint.id)}/manifest.json", b"{}")
    return checkpoint


def test_checkpoints_of_jobs_that_ended_long_ago_go(database: Database, configure: Configure, storage: Storage) -> None:
    with database.write() as session:
        old, young, living = ended(session), ended(session, at=YOUNG), make_job(session, created_at=OLD)
        gone = stored(session, storage, old)
        old.latest_checkpoint_id = old.best_checkpoint_id = gone.id
        kept = [stored(session, storage, job, created_at=OLD) for job in (young, living)]

    assert pruned(database, configure(checkpoints_days=30))["checkpoints"] == (1, 1024, 0)

    with database.read() as session:
        job = session.get_one(Job, old.id)
        assert (job.latest_checkpoint_id, job.best_checkpoint_id) == (None, None)
        assert session.get_one(Checkpoint, gone.id).deleted_at is not None
        assert [session.get_one(Checkpoint, one.id).deleted_at for one in kept] == [None, None]
    assert not storage.exists(checkpoint_key(old.id, gone.id))
    assert all(storage.exists(checkpoint_key(one.job_id, one.id)) for one in kept)


def test_a_checkpoint_that_a_living_job_starts_from_stays(database: Database, configure: Configure, storage: Storage):
    with database.write() as session:
        old = ended(session)
        pinned, other = (stored(session, storage, old, step=step) for step in (1, 2))
        make_job(session, state=JobState.PAUSED, resume_checkpoint_id=pinned.id)

    assert pruned(database, configure(checkpoints_days=30))["checkpoints"] == (1, 1024, 1)
    assert pruned(database, configure(checkpoints_max_bytes=1))["checkpoints over the budget"] == (0, 0, 1)

    with database.read() as session:
        assert session.get_one(Job, old.id).latest_checkpoint_id == pinned.id
    assert storage.exists(checkpoint_key(old.id, pinned.id))
    assert not storage.exists(checkpoint_key(old.id, other.id))


def test_over_the_budget_the_first_to_end_loses_its_oldest_first(
    database: Database, configure: Configure, storage: Storage
):
    with database.write() as session:
        first, second, living = ended(session), ended(session, at=YOUNG), make_job(session)
        expected = [stored(session, storage, first, step=step, size_bytes=100).id for step in (10, 20)]
        expected.append(stored(session, storage, second, step=5, size_bytes=100).id)
        stored(session, storage, second, step=6, size_bytes=100)
        stored(session, storage, living, size_bytes=1000)

    assert pruned(database, configure(checkpoints_max_bytes=1100))["checkpoints over the budget"] == (3, 300, 0)

    with database.read() as session:
        gone = select(Checkpoint.id).where(Checkpoint.deleted_at.is_not(None))
        assert set(session.scalars(gone)) == set(expected)
    assert pruned(database, configure(checkpoints_max_bytes=1100))["checkpoints over the budget"] == (0, 0, 0)


# ---- logs


def test_logs_go_by_age_and_nothing_else_of_the_job_does(database: Database, configure: Configure, storage: Storage):
    with database.write() as session:
        old, young = ended(session), ended(session, at=YOUNG)
    for job in (old, young):
        storage.write(f"{logs_key(job.id, 1)}/rank-0-000001.jsonl", b"line\n")
        storage.write(f"jobs/{job.id}/artifacts/model.bin", b"12345")

    assert pruned(database, configure(logs_days=30))["logs"] == (1, 5, 0)

    assert storage.names(f"jobs/{old.id}") == ("artifacts",)
    assert storage.exists(attempts_key(young.id))


def test_over_the_budget_logs_of_the_first_to_end_go(database: Database, configure: Configure, storage: Storage):
    with database.write() as session:
        first, second, living = ended(session), ended(session, at=YOUNG), make_job(session)
    for job in (first, second, living):
        storage.write(f"{logs_key(job.id, 1)}/rank-0-000001.jsonl", b"0123456789")

    assert pruned(database, configure(logs_max_bytes=10))["logs over the budget"] == (1, 10, 0)

    assert [storage.exists(attempts_key(job.id)) for job in (first, second, living)] == [False, True, True]


# ---- rows


def add_metrics(session: Any, job: Job, *, points: int) -> None:
    for step in range(points):
        session.add(Metric(job_id=job.id, name="loss", step=step, at=OLD, value=1.0, attempt=1, seq=step + 1))
    session.add(
        MetricSummary(
            job_id=job.id, name="loss", level=1, first_step=0, last_step=1, low_step=0, low=1.0, high_step=0, high=1.0
        )
    )
    job.metric_seq = points
    session.flush()


def test_metrics_of_old_jobs_go_a_part_at_a_time(
    database: Database, configure: Configure, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rows, "ROWS_AT_ONCE", 3)
    with database.write() as session:
        old, young = ended(session, latest_metrics={"loss": 1.0}), ended(session, at=YOUNG)
        add_metrics(session, old, points=9)
        add_metrics(session, young, points=2)

    assert pruned(database, configure(metrics_days=30))["metric points"] == (9, 0, 0)

    assert (count(database, Metric), count(database, MetricSummary)) == (2, 1)
    with database.read() as session:
        assert session.get_one(Job, old.id).latest_metrics == {"loss": 1.0}


def test_histories_of_old_jobs_go(database: Database, configure: Configure) -> None:
    with database.write() as session:
        for job in (ended(session), ended(session, at=YOUNG), make_job(session)):
            transitions.record_event(session, job.id, EventType.WARNING, message="x")

    assert pruned(database, configure(events_days=30))["events"] == (1, 0, 0)
    assert count(database, JobEvent) == 2


def test_old_audit_entries_and_answers_go(database: Database, configure: Configure) -> None:
    with database.write() as session:
        for number, at in enumerate((OLD, YOUNG, NOW)):
            session.add(AuditEntry(id=f"audit-{number}", at=at, actor="a", action="job.submit"))
            session.add(
                IdempotentReply(
                    project="p",
                    key_id="k",
                    idempotency_key=str(number),
                    request_hash="h",
                    status_code=201,
                    body={},
                    created_at=at,
                )
            )

    done = pruned(database, configure(audit_days=30))

    assert (done["audit entries"][0], done["idempotency answers"][0]) == (1, 2)
    assert count(database, IdempotentReply) == 1


# ---- counting, and the trail


def test_a_dry_run_counts_and_changes_nothing(database: Database, configure: Configure, storage: Storage) -> None:
    with database.write() as session:
        old = ended(session)
        stored(session, storage, old)
        add_metrics(session, old, points=2)
    everything = {name: 1 for name in load_settings({}).retention.__dataclass_fields__ if name != "enabled"}

    counted = pruned(database, configure(**everything), dry_run=True)

    assert {what: one[0] for what, one in counted.items() if one[0]} == {
        "jobs": 1,
        "checkpoints": 1,
        "checkpoints over the budget": 1,
        "metric points": 2,
    }
    assert (count(database, Job), count(database, Metric), count(database, AuditEntry)) == (1, 2, 0)
    assert storage.exists(f"jobs/{old.id}")


def test_what_went_is_in_the_audit_trail(database: Database, configure: Configure) -> None:
    with database.write() as session:
        ended(session)

    pruned(database, configure(jobs_days=30))
    pruned(database, configure(jobs_days=30))

    with database.read() as session:
        entries = session.scalars(select(AuditEntry).where(AuditEntry.action == "db.prune")).all()
    assert [(entry.actor, entry.data) for entry in entries] == [("test", {"jobs": 1})]


def test_a_storage_error_does_not_stop_the_rest_of_the_pruning(
    database: Database, configure: Configure, storage: Storage
):
    with database.write() as session:
        checkpoint = stored(session, storage, ended(session))
    folder = storage.local_path(f"jobs/{checkpoint.job_id}/checkpoints")
    assert folder is not None
    (folder / checkpoint.id / "manifest.json").unlink()
    (folder / checkpoint.id).rmdir()
    folder.rmdir()
    folder.write_text("in the way")

    assert pruned(database, configure(checkpoints_days=30))["checkpoints"] == (1, 1024, 0)


# ---- by the coordinator


@pytest.mark.long
@pytest.mark.parametrize("wanted", [True, False])
def test_the_coordinator_prunes_when_asked_to(tmp_path: Path, sqlite_url: str, redis_url: str, *, wanted: bool) -> None:
    enabled = {"TRAINYARD_RETENTION_ENABLED": str(wanted), "TRAINYARD_RETENTION_JOBS_DAYS": "30"}
    with closing(CeleryWorld(tmp_path, database_url=sqlite_url, broker_url=redis_url, **enabled)) as world:
        bootstrap.prepare(world.settings)
        with world.db.write() as session:
            ended(session)
            waiting = make_job(session, state=JobState.PENDING).id

        world.start()

        wait_for(lambda: not world.is_in(waiting, JobState.PENDING), seconds=30, what="it works")
        if wanted:
            wait_for(lambda: count(world.db, Job) == 1, seconds=30, what="the old job is gone")
        assert count(world.db, Job) == (1 if wanted else 2)


# ---- the command


@pytest.fixture
def command(database: Database, configure: Configure, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    """`trainyard db prune` with TRAINYARD_RETENTION_JOBS_DAYS=30."""
    settings = configure()
    monkeypatch.setenv("TRAINYARD_DATA_DIR", str(settings.data.dir))
    monkeypatch.setenv("TRAINYARD_DATABASE_URL", settings.database.url)
    monkeypatch.setenv("TRAINYARD_RETENTION_JOBS_DAYS", "30")
    bootstrap.prepare(load_settings())
    with database.write() as session:
        ended(session)
        ended(session, at=YOUNG)
    return lambda *arguments, answer="": CliRunner().invoke(main, ["db", "prune", *arguments], input=answer)


@pytest.mark.long
def test_the_command_shows_what_would_go_and_asks(command: Callable[..., Result], database: Database) -> None:
    refused = command(answer="n\n")

    assert refused.exit_code == 1
    assert "TRAINYARD_RETENTION_JOBS_DAYS" in refused.stdout
    assert count(database, Job) == 2

    assert command(answer="y\n").exit_code == 0
    assert count(database, Job) == 1


@pytest.mark.long
def test_the_command_takes_yes_and_answers_programs(command: Callable[..., Result], database: Database) -> None:
    would = json.loads(command("--dry-run", "--json").stdout)["pruned"]
    assert count(database, Job) == 2
    did = json.loads(command("--yes", "--json").stdout)["pruned"]

    assert would[0] == did[0]
    assert (did[0]["what"], did[0]["count"]) == ("jobs", 1)
    assert count(database, Job) == 1


def test_without_a_setting_the_command_says_so(
    command: Callable[..., Result], monkeypatch: pytest.MonkeyPatch, database: Database
) -> None:
    monkeypatch.delenv("TRAINYARD_RETENTION_JOBS_DAYS")

    assert "everything is retained indefinitely" in command("--yes").stderr
    assert count(database, Job) == 2
