"""A batch from its creation to its files, step by step."""

from datetime import timedelta
from pathlib import Path

import pytest

from app.domain.lifecycle.states import JobState
from app.models import File, Job
from app.models.base import utc_now
from app.services.batches import batch_jobs, commands, stepping
from app.services.batches.content import StepInterrupted
from app.services.jobs.control import commands as job_commands
from app.storage.object_keys import user_file_key
from tests.builders.batch_runs import CALLER, MODEL, BatchRun, answer, request
from tests.systems.apps import Api

OTHER = "/srv/models/other"


pytestmark = pytest.mark.both_databases


def ids(lines: list[dict[str, object]]) -> list[object]:
    return [line["custom_id"] for line in lines]


def test_each_model_gets_a_job_and_answers_are_in_the_order_of_the_requests(api: Api) -> None:
    run = BatchRun(api, [request("a"), request("b", OTHER), request("c"), request("d", OTHER), request("e")])

    run.start()

    assert run.status == "in_progress"
    jobs = run.jobs()
    assert set(jobs) == {MODEL, OTHER}
    document = jobs[OTHER].document
    task = document.inference.task if document.inference is not None else None
    assert task is not None
    assert (task.type, task.only_model, task.endpoint) == ("requests", OTHER, run.batch().endpoint)
    assert document.data_config.sources[0].path == run.file_id
    assert (run.batch().total, dict(run.batch().models)) == (5, {MODEL: 3, OTHER: 2})

    run.store([answer("a"), answer("c")])
    run.store([answer("e", status_code=400)], number=1)
    run.step()
    batch = run.batch()
    assert (batch.completed, batch.failed, batch.prompt_tokens, batch.completion_tokens) == (2, 1, 9, 6)

    run.store([answer("b"), answer("d")], model=OTHER)
    run.end()
    run.end(model=OTHER)
    run.step()

    batch = run.batch()
    assert (batch.status, batch.completed, batch.failed) == ("completed", 4, 1)
    assert None not in (batch.in_progress_at, batch.finalizing_at, batch.ended_at)
    assert ids(run.answers()) == ["a", "b", "c", "d"]
    first = run.answers()[0]
    assert first["id"].startswith("batch_req_")
    assert first["response"]["body"]["choices"][0]["message"]["content"] == "re a"
    assert first["error"] is None
    (error,) = run.errors()
    assert (error["custom_id"], error["response"]["status_code"], error["error"]) == ("e", 400, None)
    with run.db.read() as session:
        file = session.get_one(File, batch.output_file_id)
        assert (file.purpose, file.status, file.records, file.expires_at) == ("batch_output", "processed", 4, None)


def test_files_expire_as_was_asked_for(sqlite_api: Api) -> None:
    run = BatchRun(sqlite_api, [request("a")], output_expires_seconds=7200)
    run.start()
    run.store([answer("a")])
    run.end()
    run.step()

    with run.db.read() as session:
        file = session.get_one(File, run.batch().output_file_id)
    assert file.expires_at is not None
    assert timedelta(seconds=7100) < file.expires_at - utc_now() < timedelta(seconds=7200)
    assert run.batch().error_file_id is None


def test_requests_of_a_failed_job_are_errors_and_others_count(sqlite_api: Api) -> None:
    run = BatchRun(sqlite_api, [request("a"), request("b", OTHER), request("c")])
    run.start()
    run.store([answer("a")])
    run.fail()
    run.step()
    assert run.status == "in_progress"
    run.store([answer("b")], model=OTHER)
    run.end(model=OTHER)
    run.step()

    assert run.status == "completed"
    assert ids(run.answers()) == ["a", "b"]
    (error,) = run.errors()
    assert error["custom_id"] == "c"
    assert error["error"]["code"] == "batch_job_failed"
    assert "TRAINER_ERROR: no such tensor" in error["error"]["message"]
    assert (run.batch().completed, run.batch().failed) == (2, 1)


def test_a_batch_without_any_answer_has_failed(sqlite_api: Api) -> None:
    run = BatchRun(sqlite_api, [request("a")])
    run.start()
    run.fail()
    run.step()

    batch = run.batch()
    assert (batch.status, batch.output_file_id, batch.error_file_id) == ("failed", None, None)
    assert batch.problems[0]["code"] == "batch_job_failed"
    assert batch.ended_at is not None


def test_a_cancelled_batch_keeps_what_is_answered(api: Api) -> None:
    run = BatchRun(api, [request("a"), request("b")])
    run.start()
    run.store([answer("a")])

    commands.cancel(run.plane, CALLER, run.id)
    commands.cancel(run.plane, CALLER, run.id)
    assert run.status == "cancelling"
    run.step()
    assert run.jobs()[MODEL].state is JobState.CANCELLED
    run.step()

    batch = run.batch()
    assert (batch.status, batch.completed, batch.failed) == ("cancelled", 1, 0)
    assert ids(run.answers()) == ["a"]
    assert batch.error_file_id is None


def test_a_batch_that_is_cancelled_while_it_is_validated_has_no_files(sqlite_api: Api) -> None:
    run = BatchRun(sqlite_api, [request("a")])
    commands.cancel(run.plane, CALLER, run.id)
    run.step()
    assert (run.status, run.jobs(), run.batch().output_file_id) == ("cancelled", {}, None)


def test_what_is_left_at_the_end_of_the_window_stands_in_the_error_file(api: Api) -> None:
    run = BatchRun(api, [request("a"), request("b"), request("c")])
    run.start()
    run.store([answer("a")])
    run.end_window()
    run.step()
    run.step()

    assert run.jobs()[MODEL].state is JobState.CANCELLED
    assert run.status == "expired"
    assert ids(run.answers()) == ["a"]
    assert [(line["custom_id"], line["response"], line["error"]["code"]) for line in run.errors()] == [
        ("b", None, "batch_expired"),
        ("c", None, "batch_expired"),
    ]


def test_a_batch_whose_last_step_is_late_is_complete_all_the_same(sqlite_api: Api) -> None:
    run = BatchRun(sqlite_api, [request("a")])
    run.start()
    run.store([answer("a")])
    run.end()
    run.end_window()
    run.step()
    assert run.status == "completed"


def test_a_job_that_a_user_cancels_leaves_errors(sqlite_api: Api) -> None:
    run = BatchRun(sqlite_api, [request("a"), request("b")])
    run.start()
    run.store([answer("a")])
    job_commands.cancel(run.plane, CALLER, run.jobs()[MODEL].id)
    run.step()
    assert run.status == "completed"
    assert [line["error"]["code"] for line in run.errors()] == ["batch_job_cancelled"]


def test_the_priority_of_its_jobs_rises_while_the_window_runs_out_and_never_falls(sqlite_api: Api) -> None:
    run = BatchRun(sqlite_api, [request("a")])
    run.start()
    assert run.jobs()[MODEL].priority == 5
    now = utc_now()
    for passed, priority in ((0.6, 6), (0.8, 7), (0.95, 8), (0.1, 8)):
        run.change(created_at=now - timedelta(days=passed), expires_at=now + timedelta(days=1 - passed))
        run.step()
        assert run.jobs()[MODEL].priority == priority


def test_files_are_written_once_by_two_coordinators(api: Api) -> None:
    run = BatchRun(api, [request("a")])
    run.start()
    run.store([answer("a")])
    run.end()
    seen: list[str] = []

    def other_first() -> bool:
        if not seen:
            seen.append(run.id)
            run.step()
        return True

    stepping.step(run.plane, run.id, run.check, other_first)

    assert seen
    assert run.status == "completed"
    with run.db.read() as session:
        files = [file for file in session.query(File).all() if file.purpose == "batch_output"]
        hidden = [file for file in session.query(File).all() if file.status == "receiving"]
    assert [file.id for file in files] == [run.batch().output_file_id]
    assert hidden == []
    stored = run.plane.storage.names("user-files/default")
    assert set(stored) == {run.file_id, run.batch().output_file_id}


def test_a_coordinator_that_stops_leaves_nothing_and_the_next_one_ends_the_batch(sqlite_api: Api) -> None:
    run = BatchRun(sqlite_api, [request("a")])
    run.start()
    run.store([answer("a")])
    run.end()
    with pytest.raises(StepInterrupted):
        stepping.step(run.plane, run.id, run.check, lambda: False)
    assert run.status == "finalizing"
    assert run.plane.storage.names("user-files/default") == (run.file_id,)
    run.step()
    assert run.status == "completed"
    assert ids(run.answers()) == ["a"]


def test_a_job_is_not_doubled_by_two_coordinators(api: Api) -> None:
    run = BatchRun(api, [request("a")])
    while run.step():
        pass
    seen = run.batch()
    batch_jobs.launch(run.plane, seen)
    assert batch_jobs._submitted(run.plane, seen, MODEL, 0) is False
    with run.db.read() as session:
        assert session.query(Job).count() == 1


def test_a_storage_that_is_away_holds_up_this_batch_alone_and_says_so(sqlite_api: Api, tmp_path: Path) -> None:
    run, other = BatchRun(sqlite_api, [request("a")]), BatchRun(sqlite_api, [request("a")])
    stored = run.plane.storage.local_path(user_file_key("default", run.file_id))
    assert stored is not None
    stored.rename(tmp_path / "away")
    stepping.step_all(run.plane, [run.id, other.id], run.check, lambda: True)
    assert (run.status, other.status) == ("validating", "in_progress")
    assert run.batch().pending_reason
    (tmp_path / "away").rename(stored)
    stepping.step_all(run.plane, [run.id, other.id], run.check, lambda: True)
    assert (run.status, run.batch().pending_reason) == ("in_progress", "")
