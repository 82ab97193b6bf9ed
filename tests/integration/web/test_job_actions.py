"""What buttons on a job's page do, that it is audited, and who may press them."""

from typing import Any

import pytest
from sqlalchemy import select

from app.domain.lifecycle.states import JobState
from app.models import AuditEntry, Checkpoint, Job
from app.security.permissions import Role
from tests.builders.factories import make_checkpoint, make_job
from tests.integration.web.conftest import Browser

ACTIONS = ("pause", "resume", "save", "cancel", "retry", "change")


def make(web: Browser, state: JobState, *, steps: tuple[int, ...] = ()) -> str:
    with web.api.db.write() as session:
        job = make_job(session, state=state)
        for step in steps:
            saved = make_checkpoint(session, job, step=step, is_best=step == steps[0])
            job.latest_checkpoint_id = saved.id
            job.best_checkpoint_id = job.best_checkpoint_id or saved.id
        return job.id


def job_of(web: Browser, job_id: str) -> Job:
    with web.api.db.read() as session:
        return session.get_one(Job, job_id)


def audited(web: Browser, job_id: str) -> list[str]:
    with web.api.db.read() as session:
        return list(session.scalars(select(AuditEntry.action).where(AuditEntry.target == job_id)))


def test_pausing_a_waiting_job(web: Browser):
    job_id = make(web, JobState.QUEUED)

    assert web.act(f"/ui/jobs/{job_id}/pause") == "The job is paused."

    assert job_of(web, job_id).state is JobState.PAUSED
    assert "job.pause" in audited(web, job_id)


def test_pausing_a_running_job_without_saving(web: Browser):
    job_id = make(web, JobState.TRAINING)

    web.act(f"/ui/jobs/{job_id}/pause", {"save_checkpoint": "false", "force": "true"})

    job = job_of(web, job_id)
    assert (job.requested, job.pause_saves, job.pause_force) == ("pause", False, True)


@pytest.mark.parametrize(("chosen", "step"), [("newest", None), ("best", 10), ("one", 20)])
def test_resuming_from_the_newest_the_best_and_a_chosen_checkpoint(web: Browser, chosen: str, step: int | None):
    job_id = make(web, JobState.PAUSED, steps=(10, 20, 30))
    with web.api.db.read() as session:
        middle = session.scalar(select(Checkpoint.id).where(Checkpoint.job_id == job_id, Checkpoint.step == 20))
    choices: dict[str, dict[str, Any]] = {"newest": {}, "best": {"from_best": "true"}, "one": {"checkpoint_id": middle}}

    web.act(f"/ui/jobs/{job_id}/resume", choices[chosen])

    job = job_of(web, job_id)
    with web.api.db.read() as session:
        found = session.get(Checkpoint, job.chosen_checkpoint_id) if job.chosen_checkpoint_id else None
    assert job.state is JobState.QUEUED
    assert (found.step if found is not None else None) == step
    assert "job.resume" in audited(web, job_id)


def test_saving_now(web: Browser):
    with web.api.db.write() as session:
        job_id = make_job(session, state=JobState.TRAINING).id

    web.act(f"/ui/jobs/{job_id}/save")

    assert job_of(web, job_id).checkpoint_requests == 1
    assert "job.checkpoint" in audited(web, job_id)


def test_cancelling(web: Browser):
    waiting, running = make(web, JobState.QUEUED), make(web, JobState.TRAINING)

    assert web.act(f"/ui/jobs/{waiting}/cancel") == "The job is cancelled."
    assert web.act(f"/ui/jobs/{running}/cancel") == "The job stops now."

    assert job_of(web, waiting).state is JobState.CANCELLED
    assert job_of(web, running).requested == "cancel"
    assert "job.cancel" in audited(web, running)


def test_retrying_with_changes_leads_to_the_new_job(web: Browser):
    model, data = web.api.inputs / "model", web.api.inputs / "train.jsonl"
    model.mkdir()
    (model / "config.json").write_text("{}")
    data.write_text('{"text": "a"}\n')
    job_id = web.api.submit(
        training_config={"base_model": {"model_id": str(model)}}, data_config={"sources": [{"path": str(data)}]}
    )
    web.act(f"/ui/jobs/{job_id}/cancel")

    answer = web.post(f"/ui/jobs/{job_id}/retry", {"start": "beginning", "node_count": "1", "gpu_count": "1"})

    child = answer.headers["Location"].rpartition("/")[2]
    assert answer.status_code == 303
    assert job_of(web, child).parent_job_id == job_id
    assert "job.retry" in audited(web, job_id)


def test_a_job_that_has_not_ended_cannot_be_retried(web: Browser):
    job_id = make(web, JobState.TRAINING)

    answer = web.post(f"/ui/jobs/{job_id}/retry", headers={"HX-Request": "true"})

    assert answer.status_code == 409
    assert answer.headers["HX-Retarget"] == "#notices"
    assert "cannot be retried" in answer.get_data(as_text=True)


def test_changing_priority_labels_and_preemption(web: Browser):
    job_id = make(web, JobState.QUEUED)

    web.act(f"/ui/jobs/{job_id}/change", {"priority": "9", "labels": "team=nlp\r\n\r\n run = a=b \r\n"})

    job = job_of(web, job_id)
    assert (job.priority, job.labels) == (9, {"team": "nlp", "run": "a=b"})
    assert job.document.scheduling_config.preemptible is False
    assert "job.patch" in audited(web, job_id)
    assert "team=nlp\nrun=a=b" in web.get(f"/ui/jobs/{job_id}/change").html


def test_an_ended_job_has_a_form_for_its_labels_alone(web: Browser):
    job_id = make(web, JobState.COMPLETED)
    assert "Change labels" in web.get(f"/ui/jobs/{job_id}").text
    form = web.get(f"/ui/jobs/{job_id}/change")
    assert "Labels of" in form.text
    assert {"priority", "preemptible"}.isdisjoint(form.fields)
    assert "Pause without saving" not in form.text

    web.act(f"/ui/jobs/{job_id}/change", {"labels": "verdict=baseline"})

    assert job_of(web, job_id).labels == {"verdict": "baseline"}
    assert "job.patch" in audited(web, job_id)


def test_several_ended_jobs_are_labelled_from_the_list(web: Browser):
    ended = [make(web, state) for state in (JobState.COMPLETED, JobState.FAILED)]
    web.get("/ui/jobs")

    answer = web.post("/ui/jobs/label", {"job": ended, "key": "verdict", "value": "discarded"})

    assert answer.status_code == 200
    assert [job_of(web, job_id).labels for job_id in ended] == [{"verdict": "discarded"}] * 2


def test_a_pause_is_taken_back_until_the_job_has_stopped(web: Browser):
    job_id = make(web, JobState.TRAINING)
    web.act(f"/ui/jobs/{job_id}/pause")
    assert "Take the pause back" in web.get(f"/ui/jobs/{job_id}").text

    assert web.act(f"/ui/jobs/{job_id}/resume").startswith("The pause is taken back.")

    assert job_of(web, job_id).requested is None
    assert "Take the pause back" not in web.get(f"/ui/jobs/{job_id}").text


def test_a_pause_without_saving_has_no_way_back(web: Browser):
    job_id = make(web, JobState.TRAINING)
    web.act(f"/ui/jobs/{job_id}/pause", {"save_checkpoint": "false", "force": "true"})

    assert "Take the pause back" not in web.get(f"/ui/jobs/{job_id}").text
    answer = web.post(f"/ui/jobs/{job_id}/resume")
    assert (answer.status_code, "wait until it is PAUSED" in answer.get_data(as_text=True)) == (409, True)


@pytest.mark.parametrize(
    ("fields", "status", "says"),
    [
        ({"priority": "11"}, 422, "priority"),
        ({"labels": "no equals sign"}, 400, "is no label; write key=value"),
        ({"labels": "b@d key=1"}, 422, "labels"),
    ],
)
def test_a_change_that_breaks_a_rule_is_refused(web: Browser, fields: dict[str, str], status: int, says: str):
    job_id = make(web, JobState.QUEUED)

    answer = web.post(f"/ui/jobs/{job_id}/change", fields)

    assert answer.status_code == status
    assert says in answer.get_data(as_text=True)
    assert job_of(web, job_id).version == 1


@pytest.mark.parametrize("action", ACTIONS)
def test_a_viewer_may_do_nothing_and_strangers_find_nothing(web: Browser, viewer: Browser, action: str):
    job_id = make(web, JobState.TRAINING)
    stranger = Browser(web.api)
    stranger.sign_in(web.api.make_key(Role.ADMIN, "elsewhere"))

    assert viewer.post(f"/ui/jobs/{job_id}/{action}").status_code == 403
    fields = {"priority": "9"} if action == "change" else {}
    assert stranger.post(f"/ui/jobs/{job_id}/{action}", fields).status_code == 404
    assert job_of(web, job_id).version == 1


@pytest.mark.parametrize("action", ACTIONS)
def test_forms_of_other_sites_do_nothing(web: Browser, action: str):
    job_id = make(web, JobState.TRAINING)

    answer = web.post(f"/ui/jobs/{job_id}/{action}", headers={"Origin": "https://evil.example"})

    assert answer.status_code == 403
    assert job_of(web, job_id).version == 1
