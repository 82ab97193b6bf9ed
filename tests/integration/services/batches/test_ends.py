"""How batches end whose jobs, keys or files did not do as they should; and what is said until then."""

from datetime import timedelta
from pathlib import Path

import pytest

from app.domain.errors import TransientStorageError
from app.domain.lifecycle.states import JobState
from app.models.base import utc_now
from app.security.permissions import Caller
from app.services.batches import commands, finishing, models, stepping
from app.services.batches.content import ContentMissing
from app.services.jobs.control import commands as job_commands
from app.storage.object_keys import shard_key, user_file_key
from tests.builders.batch_runs import CALLER, MODEL, BatchRun, answer, request
from tests.systems.apps import Api

OTHER = "/srv/models/other"


def test_rows_that_cannot_be_read_are_requests_without_an_answer(sqlite_api: Api) -> None:
    run = BatchRun(sqlite_api, [request("a"), request("b"), request("c"), request("d")])
    run.start()
    run.store([answer("a"), answer("b"), answer("c")])
    run.store([answer("d")], number=1)
    key = f"{shard_key(run.jobs()[MODEL].id, 0, run.jobs()[MODEL].fence)}/part-00000.jsonl"
    first, second, _ = run.plane.storage.read(key).splitlines()
    run.plane.storage.write(key, first + b"\n17\n" + second[:20])
    run.end()
    run.step()
    assert run.status == "completed"
    assert [line["custom_id"] for line in run.answers()] == ["a", "d"]
    assert [(line["custom_id"], line["error"]["code"]) for line in run.errors()] == [
        ("b", "no_answer"),
        ("c", "no_answer"),
    ]


def test_a_batch_whose_requests_are_gone_from_the_storage_fails_after_a_while(
    sqlite_api: Api, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    run = BatchRun(sqlite_api, [request("a")])
    run.start()
    run.store([answer("a")])
    run.end()
    stored = run.plane.storage.local_path(user_file_key("default", run.file_id))
    assert stored is not None
    stored.rename(tmp_path / "gone")
    with pytest.raises(ContentMissing):
        run.step()
    assert run.status == "finalizing"
    monkeypatch.setattr(finishing, "MISSING_KEPT", timedelta(0))
    run.step()
    batch = run.batch()
    assert (batch.status, batch.completed, batch.failed) == ("failed", 0, 1)
    assert [each["code"] for each in batch.problems] == ["file_not_found"]


@pytest.mark.long
@pytest.mark.both_databases
def test_what_is_answered_until_a_cancelled_job_ends_is_counted(api: Api) -> None:
    run = BatchRun(api, [request("a"), request("b")])
    run.start()
    run.change(status="cancelling", cancel_requested=True)
    run.store([answer("a")])  # after the last step in which it ran
    run.end(JobState.CANCELLED)
    run.step()
    batch = run.batch()
    assert (batch.status, batch.completed, batch.prompt_tokens, batch.completion_tokens) == ("cancelled", 1, 3, 2)


def test_what_is_answered_until_the_window_ends_is_counted(sqlite_api: Api) -> None:
    run = BatchRun(sqlite_api, [request("a"), request("b")])
    run.start()
    run.end_window()
    run.change(status="finalizing", finalizing_at=utc_now())
    run.store([answer("a")])
    run.end(JobState.CANCELLED)
    run.step()
    batch = run.batch()
    assert (batch.status, batch.completed, batch.failed, batch.prompt_tokens) == ("expired", 1, 1, 3)


def test_a_failed_batch_says_of_each_model_why_and_counts_all_its_requests(sqlite_api: Api) -> None:
    run = BatchRun(sqlite_api, [request("a"), request("b", "support"), request("c")])
    run.change(status="in_progress", in_progress_at=utc_now(), models={MODEL: 2, "support": 1}, total=3)
    run.step()  # there is no service of this name any more
    run.fail()
    run.step()
    batch = run.batch()
    assert (batch.status, batch.completed, batch.failed) == ("failed", 0, 3)
    assert {each["model"]: (each["code"], each["param"]) for each in batch.problems} == {
        MODEL: ("batch_job_failed", None),
        "support": ("model_not_found", "body.model"),
    }


def test_a_job_that_a_user_has_cancelled_is_not_said_to_have_expired(sqlite_api: Api) -> None:
    run = BatchRun(sqlite_api, [request("a"), request("b", OTHER), request("c")])
    run.start()
    run.store([answer("a")])
    job_commands.cancel(run.plane, CALLER, run.jobs()[MODEL].id)
    run.end(JobState.CANCELLED, finished_at=utc_now() - timedelta(minutes=1))
    run.end_window()
    run.step()
    run.step()
    assert run.status == "expired"
    assert [(line["custom_id"], line["error"]["code"]) for line in run.errors()] == [
        ("b", "batch_expired"),
        ("c", "batch_job_cancelled"),
    ]


def test_a_batch_whose_only_job_a_user_has_cancelled_is_complete_even_if_the_step_is_late(sqlite_api: Api) -> None:
    run = BatchRun(sqlite_api, [request("a"), request("b")])
    run.start()
    run.store([answer("a")])
    run.end(JobState.CANCELLED, finished_at=utc_now() - timedelta(minutes=1))
    run.end_window()
    run.step()
    assert run.status == "completed"
    assert [line["error"]["code"] for line in run.errors()] == ["batch_job_cancelled"]


def test_a_model_whose_storage_is_away_does_not_stop_the_counting_of_others(
    sqlite_api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = models.meant

    def away(plane: object, session: object, caller: Caller, name: str, endpoint: str) -> models.Meant:
        if name == MODEL:
            raise TransientStorageError("the storage does not answer")
        return real(run.plane, session, caller, name, endpoint)  # type: ignore[arg-type]  # as it was given

    run = BatchRun(sqlite_api, [request("a"), request("b", OTHER)])
    assert run.step() is True
    with monkeypatch.context() as patched:
        patched.setattr(models, "meant", away)
        run.step()
        assert set(run.jobs()) == {OTHER}
        run.store([answer("b")], model=OTHER)
        run.step()
    assert (run.batch().completed, run.batch().pending_reason) == (1, "the storage does not answer")
    run.step()
    assert (set(run.jobs()), run.batch().pending_reason) == ({MODEL, OTHER}, "")


@pytest.mark.both_databases
def test_the_reason_of_an_outage_goes_with_it(api: Api) -> None:
    run = BatchRun(api, [request("a")])
    run.start()
    run.change(pending_reason="the storage does not answer")
    run.step()
    assert (run.status, run.batch().pending_reason) == ("in_progress", "")
    commands.cancel(run.plane, CALLER, run.id)
    run.change(pending_reason=stepping.FAULT)
    run.step()
    assert (run.status, run.batch().pending_reason) == ("cancelling", "")
