"""The list of jobs: its filters and columns are in the URL, and actions on several jobs tell what came of each."""

import re
from typing import Any
from urllib.parse import urlencode

import pytest

from app.domain.lifecycle.states import JobState
from app.security.permissions import Role
from app.web.job_filters import MOST_COLUMNS
from tests.builders.factories import make_document, make_job
from tests.integration.web.conftest import Browser


def test_names_are_text(web: Browser) -> None:
    web.api.submit(name="one", labels={"team": "<b>vision</b>"})

    page = web.get("/ui/jobs?column=labels")

    assert "<b>vision" not in page.html
    assert "team=<b>vision</b>" in page.text


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("", {"alpha", "beta"}),
        ("name=al", {"alpha"}),
        ("state=waiting", {"alpha", "beta"}),
        ("state=ended", set()),
        ("state=PENDING&state=FAILED", {"alpha", "beta"}),
        ("method=SFT", {"alpha", "beta"}),
        ("method=DPO", set()),
        ("label=team%3Da", {"alpha"}),
        ("label=team%3Da&label=team%3Db", set()),
        ("creator=me", {"alpha", "beta"}),
        ("creator=administrator", {"alpha", "beta"}),
        ("creator=no-such-key", set()),
        ("within=1h", {"alpha", "beta"}),
        ("before=2020-01-01", set()),
        ("after=2020-01-01&queue=default&project=default", {"alpha", "beta"}),
        ("kind=evaluation", set()),
    ],
)
def test_filters_are_in_the_url(web: Browser, query: str, found: set[str]) -> None:
    web.api.submit(name="alpha", labels={"team": "a"})
    web.api.submit(name="beta", labels={"team": "b"})

    page = web.get(f"/ui/jobs?{query}")

    assert {name for name in ("alpha", "beta") if f"Select {name}" in page.html} == found


def test_fields_left_empty_are_not_in_the_url(web: Browser) -> None:
    answer = web.client.get("/ui/jobs?name=&state=&label=&within=&metric=loss&column=state&column=progress")

    assert answer.status_code == 303
    assert answer.location == "/ui/jobs?column=state&column=progress&column=metric%3Aloss"


def test_the_default_columns_are_not_in_the_url(web: Browser) -> None:
    page = web.get("/ui/jobs")
    columns = [("column", name) for name in ("state", "progress", "note", "method", "project", "queue", "priority")]

    answer = web.client.get("/ui/jobs?" + urlencode([*columns, ("column", "creator"), ("column", "created")]))

    assert answer.location == "/ui/jobs"
    assert "Priority" in page.text


def test_any_field_of_the_document_is_a_column(web: Browser) -> None:
    web.api.submit(name="alpha")

    page = web.get("/ui/jobs?column=parameter:resource_config.device_type&column=metric:loss")

    assert "resource_config.device_type" in page.text
    assert "cpu" in page.text


def test_unknown_column_is_refused_with_the_one_meant(web: Browser) -> None:
    assert "did you mean progress" in web.get("/ui/jobs?column=progres", 400).text


def test_unknown_state_is_refused(web: Browser) -> None:
    web.get("/ui/jobs?state=ASLEEP", 422)


@pytest.mark.long
def test_pages_have_fifty_jobs_and_keep_the_filters(web: Browser) -> None:
    for i in range(51):
        web.api.submit(name=f"job {i:02}", labels={"team": "a"})

    first = web.get("/ui/jobs?label=team%3Da&order_by=name")
    following = next(link for link in first.links if "page_token" in link)
    second = web.get(following)

    assert first.html.count('name="job"') == 50
    assert "51 in all" in first.text
    assert second.html.count('name="job"') == 1
    assert "Select job 50" in second.html
    assert "/ui/jobs?label=team%3Da&order_by=name" in second.links


def test_the_refreshed_list_is_the_same_page(web: Browser) -> None:
    web.api.submit(name="alpha")

    answer = web.client.get("/ui/jobs?state=waiting", headers={"HX-Request": "true"})

    html = answer.get_data(as_text=True)
    assert html.lstrip().startswith("<section")
    assert 'hx-get="/ui/jobs?state=waiting"' in html


def test_several_jobs_are_cancelled_with_a_result_for_each(web: Browser) -> None:
    one, two = web.api.submit(name="one"), web.api.submit(name="two")
    web.api.post(f"/v1/jobs/{one}/cancel")
    web.api.post(f"/v1/jobs/{two}/pause")

    answer = web.post("/ui/jobs/pause", {"job": [one, two]})

    text = answer.get_data(as_text=True)
    assert answer.status_code == 200
    assert "1 of 2 jobs: the pause is accepted; 1 refused" in text
    assert "✓ PAUSED" in text
    assert "is CANCELLED" in text


def test_cancelling_ends_waiting_jobs(web: Browser) -> None:
    jobs = [web.api.submit(name="one"), web.api.submit(name="two")]

    answer = web.post("/ui/jobs/cancel", {"job": jobs}, headers={"HX-Request": "true"})

    assert answer.headers["HX-Trigger"] == "jobs-changed"
    assert [web.api.get(f"/v1/jobs/{each}")["status"] for each in jobs] == ["CANCELLED", "CANCELLED"]


def test_label_is_added_to_those_there_are(web: Browser) -> None:
    job = web.api.submit(name="one", labels={"team": "a"})

    web.post("/ui/jobs/label", {"job": [job], "key": "phase", "value": "two"})
    both = web.api.get(f"/v1/jobs/{job}")["labels"]
    web.post("/ui/jobs/label", {"job": [job], "key": "team"})

    assert both == {"team": "a", "phase": "two"}
    assert web.api.get(f"/v1/jobs/{job}")["labels"] == {"phase": "two"}
    changed = [entry for entry in web.api.get("/v1/audit")["entries"] if entry["action"] == "job.patch"]
    assert len(changed) == 2


def test_no_job_selected_is_said(web: Browser) -> None:
    answer = web.post("/ui/jobs/cancel", {})

    assert answer.status_code == 400
    assert "select 1 to 100 jobs" in answer.get_data(as_text=True)


def test_jobs_of_other_projects_are_neither_shown_nor_changed(web: Browser, member: Browser) -> None:
    web.api.make_key(Role.USER, "other")
    web.api.submit(name="secret plan")
    foreign = web.api.data(web.api.post("/v1/jobs?project=other", make_document(name="of another")), 201)

    page = member.get("/ui/jobs")
    answer = member.post("/ui/jobs/cancel", {"job": [foreign["job_id"]]})

    assert "of another" not in page.text
    assert "secret plan" in page.text
    assert "no job" in answer.get_data(as_text=True)
    assert web.api.get(f"/v1/jobs/{foreign['job_id']}")["status"] == "PENDING"


def test_viewers_have_no_buttons_and_may_not_act(web: Browser, viewer: Browser) -> None:
    job = web.api.submit(name="one")

    page = viewer.get("/ui/jobs")

    assert "/ui/jobs/cancel" not in page.html
    assert "Compare" in page.text
    assert viewer.post("/ui/jobs/cancel", {"job": [job]}).status_code == 403


def test_a_label_that_is_none_is_marked_at_its_field_and_other_filters_stay(web: Browser) -> None:
    web.api.submit(name="alpha")

    page = web.get("/ui/jobs?name=al&label=nokey", 422)

    assert "Write it as key=value" in page.text
    assert 'value="nokey" aria-invalid="true"' in page.html
    assert page.fields["name"] == "al"
    assert "Select alpha" not in page.html


def test_other_wrong_filters_lead_back_to_the_list(web: Browser) -> None:
    assert "/ui/jobs" in web.get("/ui/jobs?after=yesterday", 422).links


def test_the_note_says_why_a_job_failed_and_repeats_no_state(web: Browser) -> None:
    with web.api.db.write() as session:
        failure: dict[str, Any] = {
            "error_type": "SCRIPT_ERROR",
            "error_message": "KeyError: vocab_size\nmore",
            "current_step": 19,
        }
        make_job(session, state=JobState.FAILED, name="failed", status_reason="failed", **failure)
        make_job(session, state=JobState.COMPLETED, name="ended", status_reason="completed", progress=1.0)

    text = web.get("/ui/jobs?column=state&column=progress&column=note").text

    assert "FAILED – SCRIPT_ERROR: KeyError: vocab_size" in text
    assert "more" not in text.partition("KeyError")[2].partition("COMPLETED")[0]
    assert "COMPLETED 100 % –" in text


def test_the_widest_list_is_no_larger_than_pages_may_be(web: Browser) -> None:
    with web.api.db.write() as session:
        for n in range(50):
            make_job(session, name=f"job {n}", labels={"a": "1", "b": "2", "c": "3", "d": "4"})
    columns = [("column", f"metric:m{n}") for n in range(MOST_COLUMNS)]

    html = web.get(f"/ui/jobs?{urlencode(columns)}").html

    assert len(re.findall("<[a-z]", html)) <= 2000
