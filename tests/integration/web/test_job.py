"""A job's pages: what they say of jobs in each situation, and to whom."""

import html
import re
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import select

from app.domain.lifecycle.states import JobState
from app.models import ApiKey, Artifact, Attempt, Job, JobEvent, Metric
from app.models.base import utc_now
from app.security.permissions import Role
from app.storage.object_keys import artifact_key
from tests.builders.factories import make_attempt, make_checkpoint, make_document, make_job, make_node
from tests.builders.statements import statements
from tests.integration.web.conftest import Browser

CANARY = "<img src=x onerror=alert(1)>"
TABS = ("", "/head", "/events", "/attempts", "/checkpoints", "/results", "/document", "/system", "/access")
FORMS = ("/retry", "/change")


def make(web: Browser, **columns: Any) -> str:
    with web.api.db.write() as session:
        return make_job(session, **columns).id


@pytest.mark.parametrize("state", JobState)
def test_every_page_is_shown_in_every_state(web: Browser, state: JobState):
    job_id = make(web, state=state)

    for tab in (*TABS, *FORMS):
        assert "tiny-sft" in web.get(f"/ui/jobs/{job_id}{tab}").text, tab


@pytest.mark.parametrize("tab", [*TABS, *FORMS, "/files/model.safetensors", "/model-card.md"])
def test_pages_of_other_projects_do_not_exist(web: Browser, tab: str):
    job_id = make(web, state=JobState.TRAINING)
    stranger = Browser(web.api)
    stranger.sign_in(web.api.make_key(Role.ADMIN, "elsewhere"))

    page = stranger.get(f"/ui/jobs/{job_id}{tab}", 404)

    assert "tiny-sft" not in page.html


def test_a_failed_job_says_what_it_means_and_what_to_do(web: Browser):
    job_id = make(
        web,
        state=JobState.FAILED,
        error_type="DATA_NOT_FOUND",
        error_message="/srv/data/a.jsonl is missing",
        error_stack="Traceback (most recent call last):\n  ...\nFileNotFoundError: a.jsonl",
    )

    text = web.get(f"/ui/jobs/{job_id}").text

    assert "Failed: DATA_NOT_FOUND" in text
    assert "A data source could not be found or read." in text
    assert "/srv/data/a.jsonl is missing" in text
    assert "What to do:" in text
    assert "The traceback ends with FileNotFoundError: a.jsonl" in text
    assert "Traceback (most recent call last)" in web.get(f"/ui/jobs/{job_id}/attempts").text


def test_a_waiting_job_says_why_and_what_each_node_lacks(web: Browser):
    with web.api.db.write() as session:
        make_node(session, "small-1", devices=1)
        make_node(session, "small-2", devices=1)
        job_id = make_job(session, document=make_document(resource_config={"gpu_count": 2})).id

    text = web.get(f"/ui/jobs/{job_id}").text

    assert "Why it waits" in text
    assert "Number 1 in the order of service." in text
    assert "small-1 , small-2 has 1 of 2 such devices" in text


def test_a_node_without_the_wanted_kind_of_device_is_said_to_have_none(web: Browser):
    with web.api.db.write() as session:
        make_node(session, "other", devices=2)
        wanted = {"gpu_count": 2, "gpu_type": "h100", "device_type": "cuda"}
        job_id = make_job(session, document=make_document(resource_config=wanted)).id

    text = web.get(f"/ui/jobs/{job_id}").text

    assert "other has no h100" in text
    assert "Asks for 2 h100" in text


def test_a_job_that_could_start_says_where(web: Browser):
    with web.api.db.write() as session:
        make_node(session, "idle", devices=4)
        job_id = make_job(session).id

    assert "idle nothing: it can start here" in web.get(f"/ui/jobs/{job_id}").text


def test_attempts_are_bars_of_one_time_axis_with_their_causes(web: Browser):
    now = utc_now()
    with web.api.db.write() as session:
        job = make_job(session, state=JobState.QUEUED)
        node = make_node(session)
        make_attempt(session, job, node).released_at = now
        make_attempt(session, job, node, device_indices=(1,))
        first, second = (session.get_one(Attempt, (job.id, number)) for number in (1, 2))
        first.created_at, first.started_at, first.trained_at = (now - timedelta(seconds=age) for age in (100, 95, 90))
        first.ended_at, first.cause, first.end_step = now - timedelta(seconds=50), "WORKER_CRASH", 40
        second.created_at, second.started_at = now - timedelta(seconds=20), now - timedelta(seconds=15)
        job.status, job_id = JobState.TRAINING, job.id
        make_checkpoint(session, job, attempt=1, step=30, created_at=now - timedelta(seconds=75))

    page = web.get(f"/ui/jobs/{job_id}/attempts")

    assert re.search(r'class="trained failed" x="(100.0|99.\d+)"', page.html)
    assert page.html.count('class="saved"') == 2  # one of the legend
    assert "WORKER_CRASH" in page.text
    assert "it runs" in page.text
    assert "made progress (goodput)" in page.text


def test_checkpoints_offer_to_continue_from_them_where_that_is_possible(web: Browser):
    with web.api.db.write() as session:
        paused, ended, running = (
            make_job(session, state=state) for state in (JobState.PAUSED, JobState.FAILED, JobState.TRAINING)
        )
        for job in (paused, ended, running):
            make_checkpoint(session, job, step=12, is_best=True, metrics={"loss": 1.25})
        ids = paused.id, ended.id, running.id

    texts = [web.get(f"/ui/jobs/{job_id}/checkpoints").text for job_id in ids]

    assert all("12 ★ best" in text and "1.25" in text for text in texts)
    assert "Resume from here" in texts[0]
    assert "Retry from here" in texts[1]
    assert "To continue from one of them, pause the job first." in texts[2]


def test_results_are_downloaded_through_the_dashboard(web: Browser):
    with web.api.db.write() as session:
        job = make_job(session, state=JobState.COMPLETED, report={"model_hash": "a" * 64, "final_metrics": {"loss": 2}})
        session.add(Artifact(job_id=job.id, path="sub/config.json", size_bytes=2, sha256="b" * 64))
        session.add(Artifact(job_id=job.id, path="config.json", size_bytes=2, sha256="b" * 64))
        job_id = job.id
    web.api.app.extensions["trainyard"].plane.storage.write(artifact_key(job_id, "config.json"), b"{}")

    page = web.get(f"/ui/jobs/{job_id}/results")
    answer = web.client.get(f"/ui/jobs/{job_id}/files/config.json")
    card = web.client.get(f"/ui/jobs/{job_id}/model-card.md")

    assert "a" * 64 in page.text
    assert f"trainyard serve {job_id}" in page.text
    assert "AutoModelForCausalLM" in page.text
    assert (answer.status_code, answer.data, answer.headers["Content-Disposition"]) == (200, b"{}", "attachment")
    assert card.headers["Content-Disposition"] == f'attachment; filename="{job_id}.md"'
    assert web.client.get(f"/ui/jobs/{job_id}/files/none.json").status_code == 404


def test_document_shows_what_a_retry_changed(web: Browser):
    with web.api.db.write() as session:
        parent = make_job(session, state=JobState.FAILED)
        document = make_document(resource_config={"gpu_count": 4})
        job_id = make_job(session, document=document, parent_job_id=parent.id).id

    text = web.get(f"/ui/jobs/{job_id}/document").text

    assert "resource_config.gpu_count 1 4" in text


def test_events_have_pages_of_fifty(web: Browser):
    with web.api.db.write() as session:
        job = make_job(session)
        for seq in range(1, 61):
            event = {"type": "job.warning", "message": f"warning {seq};", "actor": "planner"}
            session.add(JobEvent(id=f"evt-{seq:04}", job_id=job.id, seq=seq, **event))
        job_id = job.id

    first = web.get(f"/ui/jobs/{job_id}/events")
    link = next(each for each in first.links if "page_token" in each)
    second = web.get(link)

    assert "warning 60;" in first.text
    assert "warning 10;" not in first.text
    assert "warning 10;" in second.text
    assert "First page" in second.text


def test_texts_of_users_are_texts(web: Browser):
    document = make_document(name="tiny", labels={"key": CANARY})
    with web.api.db.write() as session:
        columns = {"error_type": "SCRIPT_ERROR", "error_message": CANARY, "error_stack": CANARY}
        job = make_job(session, state=JobState.FAILED, document=document, labels={"key": CANARY}, **columns)
        job.latest_metrics = {CANARY: 1.0}
        job.name = CANARY
        session.add(JobEvent(id="evt-1", job_id=job.id, seq=1, type="job.warning", message=CANARY, data={"a": CANARY}))
        make_checkpoint(session, job, metrics={CANARY: 1.0})
        job_id = job.id

    for tab in (*TABS, *FORMS):
        page = web.get(f"/ui/jobs/{job_id}{tab}")
        assert "onerror" not in page.html.replace("&lt;img src=x onerror=alert(1)&gt;", "").replace(
            "\\u003cimg src=x onerror=alert(1)\\u003e", ""
        ), tab


def test_a_viewer_has_no_buttons(web: Browser, viewer: Browser):
    job_id = make(web, state=JobState.TRAINING)

    page = viewer.get(f"/ui/jobs/{job_id}")

    assert "Cancel" not in page.text
    assert "Clone" not in page.text
    assert viewer.get(f"/ui/jobs/{job_id}/change", 403)


@pytest.mark.parametrize("tab", ["", "/events", "/attempts", "/checkpoints"])
def test_what_a_page_of_a_viewer_asks_for_while_it_is_live_is_answered(web: Browser, viewer: Browser, tab: str):
    job_id = make(web, state=JobState.TRAINING)
    asks = re.findall(r'hx-get="([^"]+)"', viewer.get(f"/ui/jobs/{job_id}{tab}").html)

    answers = [viewer.client.get(html.unescape(each)).status_code for each in asks]

    assert f"/ui/jobs/{job_id}/head" in asks[0]
    assert set(answers) <= {200, 204}


def test_the_overview_draws_the_loss_and_renews_the_facts_with_it(web: Browser):
    with web.api.db.write() as session:
        job = make_job(session, state=JobState.TRAINING, current_step=3, latest_metrics={"loss": 1.5})
        make_attempt(session, job, make_node(session))
        session.add_all(
            Metric(job_id=job.id, attempt=1, seq=step, name="loss", step=step, value=3.0 / step, at=utc_now())
            for step in (1, 2, 3)
        )
        job_id = job.id

    page = web.get(f"/ui/jobs/{job_id}")

    assert 'aria-label="loss: 3 at first, 1 now"' in page.html
    assert 'hx-select-oob="#facts-of-its-run"' in page.html
    assert 'id="facts-of-its-run"' in page.html


def test_a_retry_says_whose_and_where_it_started(web: Browser):
    with web.api.db.write() as session:
        parent = make_job(session, state=JobState.FAILED, document=make_document(name="first-try"))
        saved = make_checkpoint(session, parent, step=1200)
        job_id = make_job(session, parent_job_id=parent.id, resume_checkpoint_id=saved.id).id
        other_id = make_job(session, parent_job_id=parent.id).id

    text, other = (web.get(f"/ui/jobs/{each}").text for each in (job_id, other_id))

    assert "Retries first-try" in text
    assert "Started from step 1,200, checkpoint" in text
    assert "Started from the beginning" in other


def test_events_name_the_key_of_who_caused_them(web: Browser):
    web.api.make_key(Role.USER, name="ada")
    with web.api.db.write() as session:
        key_id = session.scalar(select(ApiKey.id).where(ApiKey.name == "ada"))
        job = make_job(session)
        session.add(JobEvent(id="evt-1", job_id=job.id, seq=1, type="job.warning", actor=key_id))
        job_id = job.id

    assert "job.warning ada" in web.get(f"/ui/jobs/{job_id}/events").text


def test_a_job_that_was_asked_to_pause_says_what_it_waits_for(web: Browser):
    job_id = make(web, state=JobState.TRAINING, requested="pause", framework="CUSTOM")

    page = web.get(f"/ui/jobs/{job_id}")

    assert "A script of your own runs on until" in page.text
    assert "Pause without saving" in page.text


@pytest.mark.parametrize("state", [JobState.COMPLETED, JobState.FAILED])
def test_a_retry_is_asked_about_and_is_the_first_choice_only_where_it_failed(web: Browser, state: JobState):
    job_id = make(web, state=state)

    page = web.get(f"/ui/jobs/{job_id}").html

    assert 'data-confirm-title="Retry this job?" data-confirm-yes="Start a new job"' in page
    assert ('<button class="primary">Retry</button>' in page) == (state is JobState.FAILED)


def test_the_question_before_cancelling_has_an_answer_of_its_own(web: Browser):
    job_id = make(web, state=JobState.TRAINING)

    assert 'data-confirm-yes="Cancel the job"' in web.get(f"/ui/jobs/{job_id}").html


def test_the_head_renews_buttons_only_when_they_change(web: Browser):
    job_id = make(web, state=JobState.PAUSED)

    same = web.get(f"/ui/jobs/{job_id}/head?known=cancel,change,resume")
    other = web.get(f"/ui/jobs/{job_id}/head?known=cancel,change,pause")

    assert "hx-swap-oob" not in same.html
    assert 'hx-swap-oob="true"' in other.html
    assert "Resume" in other.text


def test_a_long_list_of_checkpoints_is_cut_and_keeps_the_best(web: Browser):
    with web.api.db.write() as session:
        job: Job = make_job(session, state=JobState.TRAINING)
        for step in range(1, 81):
            make_checkpoint(session, job, step=step, is_best=step == 3)
        job_id = job.id

    page = web.get(f"/ui/jobs/{job_id}/checkpoints")

    assert "The newest 51 of 80, with the best one." in page.text
    assert "3 ★ best" in page.text


@pytest.mark.parametrize("tab", ["events", "attempts", "checkpoints"])
def test_a_part_that_is_still_right_stays_as_it_is(web: Browser, tab: str):
    with web.api.db.write() as session:
        job = make_job(session, state=JobState.FAILED)
        session.add(JobEvent(id="evt-1", job_id=job.id, seq=1, type="job.warning"))
        job_id = job.id
    asks = re.search(rf'hx-get="(/ui/jobs/{job_id}/{tab}\?known=[^"]+)"', web.get(f"/ui/jobs/{job_id}/{tab}").html)
    assert asks is not None

    unchanged = web.client.get(asks[1])
    with web.api.db.write() as session:
        session.add(JobEvent(id="evt-2", job_id=job_id, seq=2, type="job.warning"))
        changed = session.get_one(Job, job_id)
        make_checkpoint(session, changed)

    assert unchanged.status_code == 204
    assert web.client.get(asks[1]).status_code == 200


def test_other_tabs_of_a_waiting_job_name_its_reason_and_lead_to_the_nodes(web: Browser):
    with web.api.db.write() as session:
        make_node(session, "idle", devices=4)
        job_id = make_job(session, pending_reason="the queue default is paused").id

    page = web.get(f"/ui/jobs/{job_id}/events")

    assert "The queue default is paused" in page.text
    assert "What prevents the start there" not in page.text
    assert f"/ui/jobs/{job_id}/head?known=cancel,change,pause&amp;brief=true" in page.html


def test_a_job_of_a_script_of_ones_own_is_called_so(web: Browser):
    own, other = make(web, training_type="CUSTOM", framework="CUSTOM"), make(web)

    assert "· custom script · project" in web.get(f"/ui/jobs/{own}").text
    assert " with " in web.get(f"/ui/jobs/{other}").text


def test_viewers_of_a_waiting_job_share_its_reasons_until_it_changes(web: Browser):
    with web.api.db.write() as session:
        make_node(session, "small", devices=1)
        job_id = make_job(session, document=make_document(resource_config={"gpu_count": 2})).id
    web.get(f"/ui/jobs/{job_id}")

    with statements(web.api.db) as again:
        web.get(f"/ui/jobs/{job_id}")
    assert not [each for each in again if "device" in each.lower() and "FROM node" in each]

    with web.api.db.write() as session:
        make_node(session, "large", devices=2)
        session.get_one(Job, job_id).mark_changed()
    assert "large nothing: it can start here" in web.get(f"/ui/jobs/{job_id}").text
