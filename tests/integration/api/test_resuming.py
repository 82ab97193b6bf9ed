"""Resuming over HTTP: from which checkpoint, what is refused, and what holds for pause and resume alike."""

from typing import Any

import pytest

from app.domain.lifecycle.outcomes import Outcome
from app.domain.lifecycle.states import JobState
from app.models import Checkpoint
from app.models.base import utc_now
from app.security.permissions import Role
from app.services.attempts import work_orders
from tests.builders.controlled import audited, events, held_job, job_of, paused_job, refused, verb, with_checkpoints
from tests.builders.factories import make_document, make_job
from tests.builders.walks import NO_WAIT
from tests.systems.apps import Api


def test_paused_job_goes_back_into_the_queue(api: Api):
    job_id = paused_job(api, not_before_at=utc_now(), attempt=1)
    made = with_checkpoints(api, job_id)

    job = verb(api, job_id, "resume")

    assert (job["status"], job["pending_reason"]) == ("QUEUED", "")
    assert api.get(f"/v1/jobs/{job['job_id']}")["queue_position"] == 1
    assert job_of(api, job_id).not_before_at is None
    (event,) = events(api, job_id)
    assert (event["from_status"], event["to_status"], event["reason"]) == ("PAUSED", "QUEUED", "resumed")
    assert event["data"] == {"checkpoint_id": made[20], "step": 20}
    assert audited(api, "job.resume") == [(job_id, {"checkpoint_id": made[20], "step": 20})]
    assert job_of(api, job_id).chosen_checkpoint_id is None


def test_job_without_a_checkpoint_is_resumed_from_its_beginning(api: Api):
    job_id = paused_job(api)

    verb(api, job_id, "resume", {"checkpoint_id": ""})

    assert events(api, job_id)[-1]["data"] == {"checkpoint_id": None, "step": 0}


def test_resume_goes_on_from_the_named_or_the_best_checkpoint(api: Api):
    job_id = paused_job(api)
    made = with_checkpoints(api, job_id, best=20, steps=(10, 20, 30))

    for body, step in (({"checkpoint_id": made[10]}, 10), ({"from_best": True}, 20)):
        verb(api, job_id, "resume", body)
        assert job_of(api, job_id).chosen_checkpoint_id == made[step]
        assert events(api, job_id)[-1]["data"] == {"checkpoint_id": made[step], "step": step}
        verb(api, job_id, "pause")


def test_resume_without_a_choice_keeps_the_one_that_nothing_was_saved_after(api: Api):
    job_id = paused_job(api)
    made = with_checkpoints(api, job_id)
    verb(api, job_id, "resume", {"checkpoint_id": made[10]})
    verb(api, job_id, "pause")

    verb(api, job_id, "resume")

    assert events(api, job_id)[-1]["data"]["checkpoint_id"] == made[10]


def test_job_that_resumes_from_its_best_by_its_document_does_so(api: Api):
    document = make_document(output_config={"checkpoint": {"resume_from_best": True}})
    job_id = paused_job(api, document=document)
    made = with_checkpoints(api, job_id)

    verb(api, job_id, "resume")

    assert events(api, job_id)[-1]["data"]["checkpoint_id"] == made[10]


def test_job_may_be_resumed_from_what_it_began_with(api: Api):
    parent = paused_job(api)
    made = with_checkpoints(api, parent)
    job_id = paused_job(api, resume_checkpoint_id=made[10])
    with_checkpoints(api, job_id)

    verb(api, job_id, "resume", {"checkpoint_id": made[10]})

    assert job_of(api, job_id).chosen_checkpoint_id == made[10]


def test_checkpoint_that_is_not_the_jobs_own_is_refused(api: Api):
    job_id, sibling, stranger = paused_job(api), paused_job(api), paused_job(api, project="other")
    retired = with_checkpoints(api, job_id)[10]
    with api.db.write() as session:
        session.get_one(Checkpoint, retired).deleted_at = utc_now()
    foreign = [with_checkpoints(api, each)[20] for each in (sibling, stranger)]

    said = {}
    for checkpoint_id in ("ckpt-nothing", "x", retired, *foreign):
        problem = refused(api, job_id, "resume", {"checkpoint_id": checkpoint_id}, 400)
        assert problem["details"][0]["field"] == "checkpoint_id"
        said[checkpoint_id] = problem["message"].replace(checkpoint_id, "X")

    assert len(set(said.values())) == 1, "what is another project's is as unknown as what is not there"
    assert job_of(api, job_id).status == "PAUSED"


def test_resuming_from_an_unknown_best_checkpoint_is_refused(sqlite_api: Api):
    job_id = paused_job(sqlite_api)
    made = with_checkpoints(sqlite_api, job_id, best=None)

    assert "none was evaluated" in refused(sqlite_api, job_id, "resume", {"from_best": True}, 400)["message"]
    both = {"from_best": True, "checkpoint_id": made[10]}
    assert "not both" in refused(sqlite_api, job_id, "resume", both, 400)["message"]


@pytest.mark.parametrize("state", sorted(set(JobState) - {JobState.PAUSED}))
def test_only_a_paused_job_is_resumed(sqlite_api: Api, state: JobState):
    with sqlite_api.db.write() as session:
        job_id = make_job(session, state=state).id

    problem = refused(sqlite_api, job_id, "resume")

    assert problem["code"] == "INVALID_STATE"
    assert state in problem["message"]
    assert "PAUSED" in problem["message"]


def test_resuming_a_job_that_still_saves_takes_its_pause_back(api: Api):
    job_id = held_job(api)
    verb(api, job_id, "pause")
    api.dispatcher.nudged.clear()

    job = verb(api, job_id, "resume")

    assert (job["status"], job["requested"]) == ("TRAINING", None)
    assert [each["type"] for each in events(api, job_id)][-2:] == ["job.pause_requested", "job.pause_withdrawn"]
    assert [target for target, _ in audited(api, "job.resume")] == [job_id]
    assert len(api.dispatcher.nudged) == 1
    assert "continues by itself" in refused(api, job_id, "resume")["message"]


@pytest.mark.parametrize(
    ("pause", "resume", "says"),
    [
        ({"force": True}, {}, "forced or does not save; wait until it is PAUSED"),
        ({"save_checkpoint": False}, {}, "forced or does not save; wait until it is PAUSED"),
        ({}, {"from_best": True}, "it is still saving; wait until it is PAUSED"),
    ],
)
def test_pause_that_cannot_be_taken_back_says_why(sqlite_api: Api, pause: Any, resume: Any, says: str):
    job_id = held_job(sqlite_api)
    verb(sqlite_api, job_id, "pause", pause)

    assert says in refused(sqlite_api, job_id, "resume", resume)["message"]
    assert job_of(sqlite_api, job_id).requested == "pause"


def test_pause_of_a_job_that_is_to_be_cancelled_is_not_taken_back(sqlite_api: Api):
    job_id = held_job(sqlite_api)
    verb(sqlite_api, job_id, "pause")
    sqlite_api.post(f"/v1/jobs/{job_id}/cancel")

    assert "TRAINING" in refused(sqlite_api, job_id, "resume")["message"]


@pytest.mark.parametrize(("on_request", "state"), [(True, JobState.QUEUED), (False, JobState.PAUSED)])
def test_attempt_that_stopped_for_a_pause_that_was_taken_back_is_continued(
    api: Api,
    on_request: bool,  # noqa: FBT001 – a column of the table
    state: JobState,
):
    """One that halted by its document has paused, whatever was requested."""
    job_id = held_job(api)
    verb(api, job_id, "pause")
    verb(api, job_id, "resume")

    work = work_orders.load_work(api.db, job_id, 1)
    work_orders.finish(api.db, work, Outcome(kind="paused", exit_code=0, on_request=on_request), NO_WAIT)

    job = job_of(api, job_id)
    assert (job.state, job.retries_used) == (state, 0)


@pytest.mark.parametrize(
    ("name", "body", "field"),
    [
        ("pause", {"save_checkpoint": "no"}, "save_checkpoint"),
        ("pause", {"force": 1}, "force"),
        ("pause", {"checkpoint": True}, "checkpoint"),
        ("resume", {"checkpoint_id": 5}, "checkpoint_id"),
        ("resume", {"checkpoint_id": "x" * 129}, "checkpoint_id"),
        ("resume", {"best": True}, "best"),
    ],
)
def test_bodies_of_another_shape_are_refused(sqlite_api: Api, name: str, body: Any, field: str):
    job_id = sqlite_api.submit()

    assert refused(sqlite_api, job_id, name, body, 422)["details"][0]["field"] == field
    assert sqlite_api.get(f"/v1/jobs/{job_id}")["status"] == "PENDING"


def test_strangers_and_viewers_neither_pause_nor_resume(sqlite_api: Api):
    job_id = sqlite_api.submit()
    stranger, viewer = sqlite_api.make_key(Role.ADMIN, "other"), sqlite_api.make_key(Role.VIEWER)

    for name in ("pause", "resume"):
        assert sqlite_api.post(f"/v1/jobs/{job_id}/{name}", key=stranger).status_code == 404
        assert sqlite_api.post(f"/v1/jobs/{job_id}/{name}", key=viewer).status_code == 403

    assert sqlite_api.get(f"/v1/jobs/{job_id}")["status"] == "PENDING"


@pytest.mark.both_databases
def test_verbs_under_one_key_are_done_once(api: Api):
    job_id = api.submit()
    headers = {"Idempotency-Key": "pause-1"}
    first = api.post(f"/v1/jobs/{job_id}/pause", headers=headers)
    verb(api, job_id, "resume", headers={"Idempotency-Key": "resume-1"})

    again = api.post(f"/v1/jobs/{job_id}/pause", headers=headers)
    resumed_again = api.post(f"/v1/jobs/{job_id}/resume", headers={"Idempotency-Key": "resume-1"})

    assert first.json == again.json
    assert resumed_again.status_code == 202
    assert job_of(api, job_id).status == "QUEUED", "neither was done a second time"
    assert len(audited(api, "job.pause")) == len(audited(api, "job.resume")) == 1
