"""The first page: what needs a person, what runs and what waits, of the caller's project alone."""

import dataclasses
from datetime import timedelta
from typing import Any

import pytest
from cryptography.fernet import Fernet

from app.domain.lifecycle.states import JobState
from app.http.context import EXTENSION
from app.models import Metric, ProcessBeat, Project, StuckDevice
from app.models.base import utc_now
from app.security.permissions import Role
from app.security.secrets import SecretBox
from app.services.requests.short_cache import ShortCache
from tests.builders.factories import make_document, make_job, make_node, make_project
from tests.integration.web.conftest import Browser, Page

CANARY = "<script>alert(1)</script>"


@pytest.fixture(autouse=True)
def no_waiting(web_api: Any) -> None:
    """What viewers share is computed for every page."""
    moments = iter(range(0, 10**6, 100))
    extensions = web_api.app.extensions
    extensions[EXTENSION] = dataclasses.replace(extensions[EXTENSION], shared=ShortCache(lambda: float(next(moments))))


def add_job(browser: Browser, project: str = "default", **columns: Any) -> str:
    with browser.api.db.write() as session:
        make_project(session, project)
        return make_job(session, project=project, **columns).id


def beat(browser: Browser) -> None:
    with browser.api.db.write() as session:
        session.add(ProcessBeat(name="coordinator-1", kind="coordinator", holder="host:1:2:3", last_seen_at=utc_now()))


def section(page: Page, heading: str, following: str) -> str:
    return page.text.partition(f" {heading} ")[2].partition(f" {following} ")[0]


def test_an_idle_cluster_needs_nobody(viewer: Browser):
    beat(viewer)

    text = viewer.get("/ui/").text

    assert "Nothing: no job failed in the last 24 hours" in text
    assert "No job runs." in text
    assert "No job waits." in text
    assert "No node has registered yet" in text


def test_what_failed_within_a_day_is_told_with_its_error(web: Browser):
    columns = {"error_type": "SCRIPT_ERROR", "error_message": f"no labels {CANARY}\nsecond line"}
    failed = add_job(web, state=JobState.FAILED, name="young", finished_at=utc_now(), **columns)
    add_job(web, state=JobState.FAILED, name="aged", finished_at=utc_now() - timedelta(hours=25), **columns)

    page = web.get("/ui/")

    assert "1 job failed in the last 24 hours" in page.text
    assert "young SCRIPT_ERROR" in page.text
    assert f"no labels {CANARY}" in page.text
    assert "second line" not in page.text
    assert "aged" not in page.text
    assert CANARY not in page.html
    assert f"/ui/jobs/{failed}" in page.links
    (those,) = [link for link in page.links if "state=FAILED" in link]
    assert "Select young" in web.get(those).html
    assert "Select aged" not in web.get(those).html


def test_nodes_and_devices_that_work_for_nobody_are_told(web: Browser):
    with web.api.db.write() as session:
        make_node(session, name="gone", state="lost")
        make_node(session, name="faulty", state="quarantined").quarantine_reason = "3 jobs failed there"
        make_node(session, name="held")
        session.add(
            StuckDevice(
                node="held", device_index=1, job_id="job-x", attempt=1, since=utc_now(), seen_at=utc_now(), is_told=True
            )
        )

    page = web.get("/ui/")
    text = section(page, "Needs attention", "Devices")

    assert "Node gone is lost" in text
    assert "Node faulty is quarantined 3 jobs failed there" in text
    assert "Node held has 1 device out of service: 1" in text
    assert {"/ui/nodes/gone", "/ui/nodes/faulty", "/ui/nodes/held"} <= set(page.links)


def test_without_a_coordinator_the_page_says_that_nothing_starts(viewer: Browser):
    assert "No coordinator answers" in viewer.get("/ui/").text

    beat(viewer)

    assert "No coordinator answers" not in viewer.get("/ui/").text


def test_a_job_that_waits_beside_a_free_device_is_told_and_one_for_others_is_not(web: Browser):
    with web.api.db.write() as session:
        make_node(session)
    long_ago = utc_now() - timedelta(minutes=5)
    on_cpu = make_document(resource_config={"device_type": "cpu", "gpu_count": 1})
    on_gpu = make_document(resource_config={"device_type": "cuda", "gpu_type": "h100", "gpu_count": 1})
    reason = "its node is excluded"
    add_job(web, name="stays", document=on_cpu, queued_at=long_ago, pending_reason=reason)
    add_job(web, name="for-gpus", document=on_gpu, queued_at=long_ago)
    add_job(web, name="just-came", document=on_cpu, queued_at=utc_now())

    text = section(web.get("/ui/"), "Needs attention", "Devices")

    assert "stays waits while devices are free" in text
    assert reason in text
    assert "for-gpus" not in text
    assert "just-came" not in text


def test_a_project_that_has_reached_its_quota_is_told_when_its_jobs_wait(web: Browser):
    with web.api.db.write() as session:
        make_project(session, "small").quota = {"max_running_jobs": 1}
        make_project(session, "idle").quota = {"max_running_jobs": 1}
    for name in ("small", "idle"):
        add_job(web, name, state=JobState.TRAINING, name=f"runs-{name}")
    add_job(web, "small", name="waits")

    text = section(web.get("/ui/"), "Needs attention", "Devices")

    assert "Project small has reached its quota, and 1 of its jobs wait" in text
    assert "the project small runs 1 of at most 1 jobs" in text
    assert "Project idle" not in text


def test_running_jobs_show_progress_the_curve_of_their_loss_and_what_is_left(web: Browser):
    columns: dict[str, Any] = {"progress": 0.25, "current_step": 25, "total_steps": 100, "eta_seconds": 3700.0}
    job_id = add_job(web, state=JobState.TRAINING, name="learns", latest_metrics={"loss": 0.5, "lr": 1}, **columns)
    with web.api.db.write() as session:
        for step, value in enumerate((2.0, None, 0.5), start=1):
            special = "NaN" if value is None else None
            session.add(
                Metric(
                    job_id=job_id,
                    name="loss",
                    step=step,
                    at=utc_now(),
                    value=value,
                    special=special,
                    attempt=1,
                    seq=step,
                )
            )

    page = web.get("/ui/")
    text = section(page, "Running", "Waiting")

    assert "learns" in text
    assert "25 %" in text
    assert "25 / 100" in text
    assert "1 h 1 min" in text
    assert 'aria-label="loss: 2 at first, 0.5 now, not finite 1 times"' in page.html


def test_waiting_jobs_stand_in_order_of_service_with_their_reasons(web: Browser):
    now = utc_now()
    add_job(web, name="later", queued_at=now, pending_reason="needs 2 h100")
    add_job(web, name="sooner", queued_at=now - timedelta(seconds=30), priority=9)

    text = web.get("/ui/").text.partition(" Waiting ")[2]

    assert text.index("sooner") < text.index("later")
    assert "needs 2 h100" in text


def test_people_see_their_project_alone(web: Browser, member: Browser):
    add_job(web, "theirs", state=JobState.FAILED, name="foreign-failed", finished_at=utc_now(), error_type="OOM")
    add_job(web, "theirs", state=JobState.TRAINING, name="foreign-runs")
    add_job(web, "theirs", name="foreign-waits")
    with web.api.db.write() as session:
        session.get_one(Project, "theirs").quota = {"max_running_jobs": 1}

    assert web.get("/ui/").text.count("foreign-") >= 3
    for path in ("/ui/", "/ui/overview/part"):
        text = member.get(path).text
        assert "foreign" not in text
        assert "theirs" not in text


def test_operators_are_told_what_doctor_finds_and_others_are_not(web: Browser):
    member = Browser(web.api)
    member.sign_in(web.api.make_key(Role.ADMIN))
    finding = "should run, but hold no lease"
    with web.api.db.write() as session:
        make_job(session, state=JobState.TRAINING, updated_at=utc_now() - timedelta(hours=1))

    assert finding in web.get("/ui/").text
    assert finding not in member.get("/ui/").text


def test_operators_are_told_of_secrets_of_another_key(web: Browser):
    with web.api.db.write() as session:
        make_job(session, sealed_secrets=SecretBox(Fernet.generate_key().decode()).seal({}))

    page = web.get("/ui/")

    assert "1 of 2 stored secrets were encrypted with another key" in page.text
    assert "TRAINYARD_SECURITY_SECRET_KEY" in page.text


def test_the_part_is_what_the_page_shows_and_asks_for_itself(web: Browser):
    part = web.get("/ui/overview/part")

    assert part.html.lstrip().startswith('<div id="overview" data-live="jobs nodes queue" hx-get="/ui/overview/part"')
    assert "<html" not in part.html


def test_devices_of_a_lost_node_are_counted_and_who_may_removes_it(web: Browser, member: Browser):
    with web.api.db.write() as session:
        make_node(session, name="gone", state="lost", devices=2)

    page = web.get("/ui/")

    assert "0 free · 2 on nodes that are not ready" in page.text
    assert "Remove gone" in page.text
    assert "Remove gone" not in member.get("/ui/").text
    assert web.act("/ui/nodes/gone/remove") == "gone is removed."
