"""Uploaded files are inspected by coordinators, and jobs that name them wait for the result."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from app.database.engine import Database
from app.domain.ids import new_id
from app.domain.lifecycle.states import JobState
from app.domain.spec.locations.paths import ReadingRules
from app.models import File, Inspection
from app.services.files import inspection_requests
from app.services.preflight import admission, file_inspections
from app.services.preflight.file_inspections import NO_REASON, NO_RESULT, FileTask
from app.services.preflight.inspection_queue import InspectionQueue
from app.services.preflight.inspections import MOST_TRIES
from app.services.requests.wakeups import Dispatcher
from app.storage.object_keys import user_file_key
from app.storage.storage import Storage
from config.settings import Settings, load_settings
from tasks.background.preflight import PreflightRunner
from tasks.celery_app import Runtime
from tests.builders.admitting import admit
from tests.builders.factories import make_document, make_project
from tests.builders.walks import job_of, make_job
from tests.systems.engines import engine_on
from tests.systems.system import wait_for
from workers.prepare.files.inspection import inspect_file

VALID = b'{"messages": [{"role": "user", "content": "2 + 2?"}, {"role": "assistant", "content": "4"}]}\n'
FOUND = {"records": 3, "shape": "messages", "problems": []}


@pytest.fixture
def db(sqlite_url: str) -> Iterator[Database]:
    database = Database().bind(engine_on(sqlite_url))
    with database.write() as session:
        make_project(session)
    yield database
    database.close()


@pytest.fixture
def rules(tmp_path: Path) -> ReadingRules:
    return ReadingRules(roots=(str(tmp_path),), real_path=os.path.realpath)


def add_file(db: Database, content: bytes = VALID) -> str:
    with db.write() as session:
        file = File(
            id=new_id("file"),
            project="default",
            created_by="key-user",
            filename="train.jsonl",
            purpose="fine-tune",
            size_bytes=len(content),
            sha256="0" * 64,
        )
        session.add(file)
        inspection_requests.request(session, file)
        return file.id


def file_of(db: Database, file_id: str) -> File:
    with db.read() as session:
        return session.get_one(File, file_id)


def add_job(db: Database, rules: ReadingRules, *file_ids: str) -> str:
    sources = [{"path": each, "format": "jsonl"} for each in file_ids]
    job_id = make_job(db, document=make_document(data_config={"sources": sources}))
    admit(db, job_id, rules)
    return job_id


def settings_of(tmp_path: Path, **variables: str) -> Settings:
    return load_settings({"TRAINYARD_DATA_DIR": str(tmp_path / "data"), **variables})


def claim(db: Database, line: InspectionQueue) -> FileTask:
    (seen,) = line.free([], 0.0)[:1]
    task = file_inspections.claim(db, seen, line.me)
    assert task is not None
    return task


def test_a_coordinator_inspects_files_even_where_preflights_are_off(db: Database, tmp_path: Path) -> None:
    settings = settings_of(
        tmp_path,
        TRAINYARD_PREFLIGHT_ENABLED="false",
        TRAINYARD_PREFLIGHT_PROCESSES="2",
        TRAINYARD_SCHEDULER_POLL_SECONDS="0.1",
    )
    broken = VALID + b"\n" + b'{"messages": [{"role": "user", "content": 4}]}\n{"messages"'
    valid_id, broken_id = add_file(db, VALID * 2), add_file(db, broken)
    for file_id, content in ((valid_id, VALID * 2), (broken_id, broken)):
        Storage(settings.storage.url).write(user_file_key("default", file_id), content)
    inspector = PreflightRunner(Runtime(settings, db, Dispatcher(settings)), "coordinator")

    inspector.start()
    try:
        ids = valid_id, broken_id
        wait_for(lambda: all(file_of(db, each).status != "uploaded" for each in ids), seconds=60, what="all inspected")
    finally:
        inspector.stop()
        inspector.join()

    valid, broken_file = file_of(db, valid_id), file_of(db, broken_id)
    assert (valid.status, valid.status_details, valid.records, valid.shape) == ("processed", "", 2, "messages")
    assert broken_file.status == "error"
    assert broken_file.status_details.split("\n") == [
        "line 3: messages.0.content: must be a text",
        "line 3: messages: has no turn of the assistant to learn; line 1 has one",
        "line 4: is not JSON: Expecting ':' delimiter at character 12",
    ]


def test_content_that_is_not_what_was_uploaded_is_told(tmp_path: Path) -> None:
    settings, file_id = settings_of(tmp_path), new_id("file")
    question = {"project": "default", "file_id": file_id, "purpose": "fine-tune", "size_bytes": 1, "seconds": 60.0}
    lost = inspect_file(settings, question)
    Storage(settings.storage.url).write(user_file_key("default", file_id), VALID)

    changed = inspect_file(settings, question)

    assert lost == {"problems": ["its content is not in the storage any more; upload it again"]}
    assert changed == {"problems": ["its content in the storage is not what was uploaded; upload it again"]}


def test_a_job_waits_for_its_files_and_is_queued_when_the_last_is_inspected(db: Database, rules: ReadingRules) -> None:
    line, first, second = InspectionQueue(db), add_file(db), add_file(db)
    job_id = add_job(db, rules, first, second)
    waiting = job_of(db, job_id)
    assert (waiting.state, waiting.pending_reason) == (JobState.PENDING, f"its file {first} is being inspected")
    assert admission.admit_waiting(db, rules) == 0

    file_inspections.conclude(db, claim(db, line), FOUND)
    admission.admit_waiting(db, rules)
    assert job_of(db, job_id).pending_reason == f"its file {second} is being inspected"
    file_inspections.conclude(db, claim(db, line), FOUND)
    admission.admit_waiting(db, rules)

    assert job_of(db, job_id).state is JobState.QUEUED


def test_a_job_fails_with_what_is_wrong_in_its_file(db: Database, rules: ReadingRules) -> None:
    file_id = add_file(db)
    job_id = add_job(db, rules, file_id)

    problems = ["line 3: is not JSON", "line 4: is not JSON"]
    file_inspections.conclude(db, claim(db, InspectionQueue(db)), {**FOUND, "problems": problems})
    admission.admit_waiting(db, rules)

    job = job_of(db, job_id)
    assert (job.state, job.error_type, job.error_message) == (
        JobState.FAILED,
        "DATA_INVALID",
        f"{file_id} (train.jsonl): line 3: is not JSON (and 1 more)",
    )


def test_an_inspection_without_a_result_is_repeated_and_not_forever(db: Database) -> None:
    file_id, line = add_file(db), InspectionQueue(db)

    for _ in range(MOST_TRIES):
        file_inspections.conclude(db, claim(db, line), {"unavailable": "the storage is away"})
        file_inspections.conclude(db, claim(db, line), {"left_out": ["it was killed\0"]})
    task = claim(db, line)

    why = f"{NO_RESULT}; the last time: it was killed\ufffd"
    assert task.report == {"problems": [why]}
    assert file_inspections.conclude(db, task, task.report)
    assert (file_of(db, file_id).status, file_of(db, file_id).status_details) == ("error", why)


def test_an_inspection_whose_coordinators_end_is_given_up_without_their_reason(db: Database) -> None:
    file_id = add_file(db)

    tasks = [claim(db, InspectionQueue(db, f"coordinator-{each}", is_dead=lambda _: True)) for each in range(4)]

    assert [task.report for task in tasks[:MOST_TRIES]] == [None] * MOST_TRIES
    assert tasks[-1].report == {"problems": [f"{NO_RESULT}; the last time: {NO_REASON}"]}
    assert file_of(db, file_id).status == "uploaded"


def test_where_a_sandbox_is_demanded_no_file_is_inspected_without_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))  # has no bubblewrap
    question = {"project": "default", "file_id": new_id("file"), "purpose": "fine-tune", "size_bytes": len(VALID)}
    reports = []
    for sandbox in ("bubblewrap", "auto"):
        settings = settings_of(tmp_path, TRAINYARD_NODE_SANDBOX=sandbox)
        Storage(settings.storage.url).write(user_file_key("default", str(question["file_id"])), VALID)
        reports.append(inspect_file(settings, {**question, "seconds": 20.0 if sandbox == "auto" else 0.1}))

    assert reports[0]["unavailable"].startswith("this coordinator inspects no files without a sandbox: ")
    assert (reports[1]["records"], reports[1]["problems"]) == (1, [])


def test_the_inspection_of_a_deleted_file_is_given_up(db: Database, rules: ReadingRules) -> None:
    file_id = add_file(db)
    job_id, task = add_job(db, rules, file_id), claim(db, InspectionQueue(db))

    with db.write() as session:
        inspection_requests.drop(session, file_id)
        session.delete(session.get_one(File, file_id))

    assert not file_inspections.conclude(db, task, FOUND)
    admission.admit_waiting(db, rules)
    assert job_of(db, job_id).error_type == "DATA_NOT_FOUND"
    with db.read() as session:
        assert session.query(Inspection).count() == 0
