"""`trainyard jobs --local`: filters, the verbs and the export, on a real database of each kind."""

import csv
import io
import json
import threading
from pathlib import Path
from typing import Any

import click
import pytest

from app.cli.client.jobs.group import jobs
from app.cli.main import main
from app.database.engine import Database
from app.domain.lifecycle.states import JobState
from app.models import Job
from app.schemas.jobs import SubmitJobSchema
from app.services.lifecycle import labels
from app.storage.storage import Storage
from tests.builders.factories import make_attempt, make_checkpoint, make_document, make_job, make_node
from tests.systems.commands import run_local, run_local_json
from tests.systems.running_up import wait_until


def stored(db: Database, **columns: Any) -> str:
    document = make_document(name=columns.pop("name", "a"))
    with db.write() as session:
        job = make_job(session, document=document, **columns)
        session.add_all(labels.rows(job))
        return str(job.id)


@pytest.mark.both_databases
def test_jobs_are_found_by_name_and_labels(db: Database) -> None:
    stored(db, name="other")
    wanted = stored(db, name="mine", labels={"team": "a", "run": "1"})

    assert [job["job_id"] for job in run_local_json("jobs", "list", "--name", "mi")["jobs"]] == [wanted]
    labelled = run_local_json("jobs", "list", "--label", "team=a", "--label", "run=1")["jobs"]
    assert [job["job_id"] for job in labelled] == [wanted]
    assert run_local_json("jobs", "list", "--label", "team=b")["jobs"] == []
    assert run_local("jobs", "list", "--label", "team").exit_code == 2


def test_priority_and_labels_are_changed(db: Database) -> None:
    job_id = stored(db, labels={"a": "b"})

    changed = run_local_json("jobs", "change", job_id, "--priority", "9", "--label", "c=d=e")

    assert (changed["scheduling_config"]["priority"], changed["labels"]) == (9, {"c": "d=e"})
    assert run_local_json("jobs", "change", job_id, "--no-labels")["labels"] == {}
    assert "priority 9" in run_local("jobs", "change", job_id, "--priority", "9").stdout
    nothing = run_local("jobs", "change", job_id)
    assert (nothing.exit_code, "at least one of" in nothing.stderr) == (2, True)
    assert run_local_json("jobs", "show", job_id)["events"][-1]["actor"] == "cli"


@pytest.mark.parametrize("label", ["bad!key=x", f"{'k' * 64}=x", f"k={'v' * 256}"])
def test_labels_that_the_api_would_refuse_are_a_usage_error(db: Database, label: str) -> None:
    job_id = stored(db, labels={"a": "b"})

    refused = run_local("jobs", "change", job_id, "--label", label)

    assert (refused.exit_code, "labels" in refused.stderr) == (1, True)
    assert run_local_json("jobs", "show", job_id)["labels"] == {"a": "b"}


@pytest.mark.long
def test_running_job_is_asked_to_save(db: Database) -> None:
    with db.write() as session:
        job = make_job(session)
        make_attempt(session, job, make_node(session))
        job.status = JobState.TRAINING
        job_id = job.id

    assert run_local_json("jobs", "checkpoint", job_id)["status"] == "TRAINING"

    with db.read() as session:
        assert session.get_one(Job, job_id).checkpoint_requests == 1
    assert "cannot save" in run_local("jobs", "checkpoint", stored(db)).stderr


@pytest.mark.long
def test_job_is_paused_and_resumed(db: Database) -> None:
    job_id = stored(db)
    with db.write() as session:
        job = session.get_one(Job, job_id)
        made = {step: make_checkpoint(session, job, step=step).id for step in (1, 2)}
        job.best_checkpoint_id = made[1]

    assert run_local("jobs", "pause", job_id).stdout == f"{job_id} PAUSED\n"
    assert run_local_json("jobs", "resume", job_id, "--best")["status"] == "QUEUED"
    assert run_local("jobs", "pause", job_id).exit_code == 0
    wrong = run_local("jobs", "resume", job_id, "--checkpoint", "ckpt-other")
    assert (wrong.exit_code, "has no checkpoint ckpt-other" in wrong.stderr) == (1, True)
    assert run_local("jobs", "resume", job_id, "--checkpoint", made[2]).stdout == f"{job_id} QUEUED\n"
    assert "cannot be resumed" in run_local("jobs", "resume", job_id).stderr
    assert run_local_json("jobs", "show", job_id)["events"][-1]["actor"] == "cli"


@pytest.mark.long
def test_pause_of_a_running_job_is_a_control_request(db: Database) -> None:
    with db.write() as session:
        job = make_job(session)
        make_attempt(session, job, make_node(session))
        job.status = JobState.TRAINING
        job_id = job.id

    assert (
        run_local("jobs", "pause", job_id, "--no-checkpoint", "--force").stdout
        == f"{job_id} TRAINING (pause requested)\n"
    )

    with db.read() as session:
        job = session.get_one(Job, job_id)
        assert (job.pause_saves, job.pause_force) == (False, True)


@pytest.mark.long
def test_pause_waits_for_what_comes_of_it(db: Database) -> None:
    idle = stored(db)
    with db.write() as session:
        job = make_job(session)
        make_attempt(session, job, make_node(session))
        job.status = JobState.TRAINING
        running = job.id

    def goes_on() -> None:
        wait_until(lambda: requested() == "pause")
        with db.write() as session:
            session.get_one(Job, running).requested = None

    def requested() -> str | None:
        with db.read() as session:
            return session.get_one(Job, running).requested

    assert run_local("jobs", "pause", idle, "--wait").stdout == f"{idle} PAUSED\n"
    continues = threading.Thread(target=goes_on)
    continues.start()
    continued = run_local("jobs", "pause", running, "--wait")
    continues.join()
    assert (continued.exit_code, continued.stdout) == (1, f"{running} TRAINING\n")


@pytest.mark.parametrize("verb", ["cancel", "checkpoint", "compare", "pause", "resume", "retry"])
def test_command_with_a_name_of_its_own_is_that_of_the_group(verb: str) -> None:
    assert main.get_command(click.Context(main), verb) is jobs.commands[verb]


@pytest.mark.long
def test_ended_job_is_retried_with_other_resources(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRAINYARD_STORAGE_ROOTS", "/srv")
    parent = stored(db, state=JobState.FAILED)
    with db.write() as session:
        job = session.get_one(Job, parent)
        job.spec = SubmitJobSchema().load(job.spec).to_json()
        make_node(session)

    child = run_local_json("jobs", "retry", parent, "--from-start", "--resource", "gpu_count=2")

    assert (child["parent_job_id"], child["status"]) == (parent, "PENDING")
    assert child["resource_config"]["gpu_count"] == 2
    assert run_local_json("jobs", "show", parent)["child_job_ids"] == [child["job_id"]]
    for wrong, code in (("gpu_count=many", 1), ("gpus=2", 1), ("gpu_count", 2), ("gpu_count=500", 1)):
        refused = run_local("jobs", "retry", parent, "--resource", wrong)
        assert (refused.exit_code, refused.stdout) == (code, "")
    assert "cannot be retried" in run_local("jobs", "retry", child["job_id"]).stderr


@pytest.mark.both_databases
def test_deletion_asks_first_and_removes_files_only_on_request(db: Database, tmp_path: Path) -> None:
    kept, gone = stored(db, state=JobState.COMPLETED), stored(db, state=JobState.FAILED)
    storage = Storage(f"file://{tmp_path}/data/files")
    for job_id in (kept, gone):
        storage.write(f"jobs/{job_id}/artifacts/model", b"x")

    refused = run_local("jobs", "delete", kept, input="n\n")
    assert refused.exit_code == 1
    assert run_local_json("jobs", "show", kept)["status"] == "COMPLETED"
    assert run_local("jobs", "delete", kept, input="y\n").stdout == f"{kept} deleted\n"
    assert run_local_json("jobs", "delete", gone, "--artifacts", "--yes") == {"job_id": gone, "deleted": True}

    assert run_local_json("jobs", "list")["jobs"] == []
    assert [len(storage.list(f"jobs/{job_id}")) for job_id in (kept, gone)] == [1, 0]


def test_job_that_has_not_ended_is_not_deleted(db: Database) -> None:
    job_id = stored(db)

    answer = run_local("jobs", "delete", job_id, "--yes")

    assert (answer.exit_code, "cancel it first" in answer.stderr) == (1, True)


def test_export_prints_every_job_oldest_first(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trainyard._client.calls.PAGE_SIZE", 2)
    ids = [stored(db, name=f"-j{n}", state=JobState.COMPLETED) for n in range(5)]
    stored(db)

    lines = [json.loads(line) for line in run_local("jobs", "export").stdout.splitlines()]
    table = run_local("jobs", "export", "--csv", "--status", "completed", "--project", "default").stdout

    assert [line["job_id"] for line in lines][:5] == ids
    rows = list(csv.DictReader(io.StringIO(table)))
    assert [row["job_id"] for row in rows] == ids
    assert (rows[0]["name"], rows[0]["queue"], rows[0]["priority"]) == ("'-j0", "default", "5")
