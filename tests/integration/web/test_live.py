"""What pages learn of changes: by a stream, by an answer without one, and only of what the caller sees."""

import json
from typing import Any

import pytest
from sqlalchemy import delete, update

from app.domain.lifecycle.states import JobState
from app.http.context import EXTENSION, Backend
from app.models import Job, Queue, WebSession
from app.models.base import utc_now
from app.security.permissions import Role
from app.services.operations.change_marks import ChangeMarks
from app.services.requests.short_cache import ShortCache
from tests.builders.factories import make_job, make_node, make_project
from tests.integration.web.conftest import Browser


@pytest.fixture(autouse=True)
def no_waiting(web_api: Any) -> None:
    """Marks are computed for every question."""
    backend: Backend = web_api.app.extensions[EXTENSION]
    moments = iter(range(0, 10**6, 10))
    object.__setattr__(backend, "marks", ChangeMarks(ShortCache(lambda: next(moments))))


def marks(browser: Browser, topics: str, after: str = "", **more: Any) -> Any:
    extra = "".join(f"&{name}={value}" for name, value in more.items())
    return browser.json(f"/ui/live/marks?topic={topics}" + (f"&after={after}" if after else "") + extra)


def job_of(browser: Browser, project: str = "default", **columns: Any) -> str:
    with browser.api.db.write() as session:
        make_project(session, project)
        return make_job(session, project=project, **columns).id


def test_a_page_is_told_of_its_topics_that_changed(web: Browser):
    job_id = job_of(web, state=JobState.TRAINING)
    topics = f"jobs,job:{job_id},metrics:{job_id},nodes,queue"
    first = marks(web, topics)

    with web.api.db.write() as session:
        session.execute(update(Job).values(metric_seq=7, updated_at=utc_now()))
    second = marks(web, topics, first["id"])
    with web.api.db.write() as session:
        make_node(session)
        session.execute(update(Queue).values(is_paused=True))
    third = marks(web, topics, second["id"])

    assert first["changed"] == []
    assert second["changed"] == ["jobs", f"job:{job_id}", f"metrics:{job_id}"]
    assert third["changed"] == ["nodes", "queue"]
    assert marks(web, topics, third["id"])["changed"] == []


def test_a_change_while_a_page_was_made_is_not_missed(web: Browser):
    job_id = job_of(web, state=JobState.TRAINING)
    now = int(utc_now().timestamp() * 1000)

    assert marks(web, f"job:{job_id}", made=now)["changed"] == [f"job:{job_id}"]
    assert marks(web, f"job:{job_id}", made=now + 60_000)["changed"] == []


def test_foreign_jobs_change_nothing_that_a_page_is_told(web: Browser, member: Browser):
    foreign = job_of(web, "theirs", state=JobState.TRAINING)
    unknown = "job-00000000-0000-0000-0000-000000000000"
    topics = f"jobs,queue,job:{foreign},log:{foreign},metrics:{foreign}"
    before = marks(member, topics)

    with web.api.db.write() as session:
        session.execute(update(Job).values(metric_seq=7, version=9, status=JobState.QUEUED, updated_at=utc_now()))

    assert marks(member, topics, before["id"])["changed"] == []
    assert marks(member, f"job:{foreign}")["id"] == marks(member, f"job:{unknown}")["id"]


def test_a_log_changes_when_a_line_is_written(web: Browser):
    job_id = job_of(web, state=JobState.TRAINING, attempt=1)
    before = marks(web, f"log:{job_id}")
    storage = web.api.app.extensions[EXTENSION].plane.storage

    storage.grow(f"jobs/{job_id}/attempts/1/logs/rank-0-000001.log", offset=0, tail=b"x", whole=b"x")

    assert marks(web, f"log:{job_id}", before["id"])["changed"] == [f"log:{job_id}"]


@pytest.mark.parametrize(
    ("topics", "status"),
    [("", 422), ("jobs%00", 422), ("all", 400), ("job:1", 400), ("jobs:job-1", 400), ("sweep:x", 400)],
)
def test_what_is_no_topic_is_refused(web: Browser, topics: str, status: int):
    assert web.client.get(f"/ui/live/marks?topic={topics}").status_code == status


def events_of(answer: Any, count: int) -> list[str]:
    """The first chunks of a stream."""
    chunks = answer.iter_encoded()
    found = [next(chunks).decode() for _ in range(count)]
    answer.close()
    return found


def test_a_stream_begins_with_the_marks_and_resumes_after_an_id(web: Browser):
    job_of(web, state=JobState.TRAINING)
    headers = {"Accept": "text/event-stream"}
    opening, retry, first = events_of(web.client.get("/ui/live?topic=jobs", headers=headers), 3)
    known = marks(web, "jobs")["id"]

    resumed = events_of(web.client.get("/ui/live?topic=jobs", headers={**headers, "Last-Event-ID": "1"}), 3)[2]

    assert (opening, retry) == (": open\n\n", "retry: 2000\n\n")
    assert first.startswith(f"id: {known}\ndata: ")
    assert json.loads(first.split("data: ")[1]) == {"changed": [], "id": known, "pace": 1.0}
    assert json.loads(resumed.split("data: ")[1])["changed"] == ["jobs"]


def test_a_stream_ends_when_its_session_ends(web: Browser):
    answer = web.client.get("/ui/live?topic=queue", headers={"Accept": "text/event-stream"})
    chunks = answer.iter_encoded()
    next(chunks)

    with web.api.db.write() as session:
        session.execute(delete(WebSession))

    rest = b"".join(chunks).decode()
    assert rest.rpartition("event: error\n")[2].startswith('data: {"code":"AUTH_TOKEN_INVALID"')


def test_without_a_slot_a_page_is_sent_to_the_answers(web: Browser):
    backend: Backend = web.api.app.extensions[EXTENSION]
    taken = 0
    for holder in ("a", "b"):
        for _ in range(16):
            if taken < 24:
                backend.viewers.take(holder)
                taken += 1

    answer = web.client.get("/ui/live?topic=jobs", headers={"Accept": "text/event-stream", "HX-Request": "true"})

    assert answer.status_code == 429
    assert "asks every few seconds" in answer.get_data(as_text=True)
    assert marks(web, "jobs")["changed"] == []
    assert web.api.client.get("/v1/jobs", headers={"Authorization": f"Bearer {web.api.key}"}).status_code == 200


def test_many_tabs_without_a_stream_are_asked_to_come_less_often(web: Browser):
    backend: Backend = web.api.app.extensions[EXTENSION]
    assert marks(web, "jobs")["pace"] == 1.0

    for number in range(99):
        backend.polls.note(f"another-{number}")
    assert marks(web, "jobs")["pace"] == 100 / 8

    for number in range(2000):
        backend.polls.note(f"another-{number}")
    assert marks(web, "jobs")["pace"] == 30.0


def test_a_session_that_only_reads_may_follow(web: Browser):
    browser = Browser(web.api)
    browser.sign_in(web.api.make_key(Role.VIEWER))

    assert marks(browser, "jobs,nodes,queue")["changed"] == []
