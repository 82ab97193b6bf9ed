"""The tab that shows how a job is reached: its ports, the sessions in it, and what stays after a failure."""

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from app.database.engine import Database
from app.domain.errors import Forbidden
from app.domain.ids import new_id
from app.domain.lifecycle.states import JobState
from app.models import InteractiveSession, Job
from app.models.base import utc_now
from app.security.permissions import Role
from app.services.interactive import attending
from tests.builders.factories import make_document, make_job
from tests.builders.interactive import open_job
from tests.integration.web.conftest import SITE, Browser
from tests.systems.apps import SECRET_KEY, Api
from tests.systems.engines import engine_on
from trainyard.protocol.interactive import PAGE_TICKET, PROTOCOL

PORTS = {"ports": [{"name": "ui", "port": 8080}, {"name": "db", "port": 5432, "protocol": "tcp"}]}


def make(web: Browser, **columns: Any) -> str:
    document = make_document()
    with web.api.db.write() as session:
        job = make_job(session, **{"state": JobState.TRAINING, **columns})
        job.spec = {**document, "interactive_config": PORTS}
        return job.id


def add_session(web: Browser, job_id: str, **columns: Any) -> str:
    row = InteractiveSession(
        id=new_id("isession"),
        job_id=job_id,
        attempt=1,
        kind="exec",
        request={"type": "exec", "command": ["<b>nvidia-smi</b>"]},
        created_by="key-x",
        **columns,
    )
    with web.api.db.write() as session:
        session.add(row)
        return row.id


@pytest.fixture
def served(sqlite_url: str, tmp_path: Path) -> Iterator[Browser]:
    """A dashboard beside a gateway that serves ports."""
    bound = Database().bind(engine_on(sqlite_url))
    made = Api(bound, tmp_path, TRAINYARD_WEB_ENABLED="true", TRAINYARD_GATEWAY_PORTS_URL="http://jobs.localhost:8001")
    browser = Browser(made)
    browser.sign_in(made.key)
    yield browser
    made.close()
    bound.close()


def test_ports_of_a_running_job_are_opened_by_a_button_or_forwarded(served: Browser):
    job_id = make(served)

    page = served.get(f"/ui/jobs/{job_id}/access")

    assert f"/ui/jobs/{job_id}/ports/ui/open" in page.html
    assert f"trainyard port-forward {job_id} 5432:5432" in page.text
    assert f"trainyard shell {job_id}" in page.text


def test_a_port_of_an_instance_is_forwarded_by_its_name(served: Browser):
    job_id = make(served)
    with served.api.db.write() as session:
        job = session.get_one(Job, job_id)
        port = {"name": "db", "port": 5432, "protocol": "tcp", "role": "store", "index": 1}
        roles = [{"role": "store", "count": 2}]
        job.spec = {**job.spec, "tasks": roles, "interactive_config": {"ports": [port]}}

    page = served.get(f"/ui/jobs/{job_id}/access")

    assert "of store 1" in page.text
    assert f"trainyard port-forward {job_id} db" in page.text
    refused = served.api.problem(served.api.post(f"/v1/jobs/{job_id}/ports/db/url"), 400)
    assert refused["message"].endswith(f"trainyard port-forward {job_id} db")


def test_opening_a_port_leads_to_an_address_with_a_token_that_nothing_keeps(served: Browser):
    job_id = make(served)
    served.get(f"/ui/jobs/{job_id}/access")

    answer = served.post(f"/ui/jobs/{job_id}/ports/ui/open")

    begin = f"http://jobs.localhost:8001/jobs/{job_id}/ports/ui/?trainyard_token="
    assert answer.status_code == 200
    assert answer.headers["Refresh"].startswith(f"0; url={begin}")
    assert answer.headers["Referrer-Policy"] == "no-referrer"
    assert "no-store" in answer.headers["Cache-Control"]


def test_a_notebook_that_is_closed_says_why(served: Browser):
    job_id = make(served)
    with served.api.db.write() as session:
        job = session.get_one(Job, job_id)
        job.spec = {**job.spec, "interactive_config": {"notebook": True}}
    assert f"/ui/jobs/{job_id}/ports/notebook/open" in served.get(f"/ui/jobs/{job_id}/access").html

    served.api.call("PATCH", "/v1/projects/default", json={"sessions": "recorded"})

    page = served.get(f"/ui/jobs/{job_id}/access")
    assert f"/ui/jobs/{job_id}/ports/notebook/open" not in page.html
    assert "is recorded, which cells and terminals of a notebook can't be" in page.text
    assert served.post(f"/ui/jobs/{job_id}/ports/notebook/open").status_code == 403


def test_a_port_that_is_for_others_has_no_button_and_is_refused(served: Browser):
    job_id = make(served)
    with served.api.db.write() as session:
        job = session.get_one(Job, job_id)
        port = {"name": "ui", "port": 8080, "authorized_users": ["ada@example.org"]}
        job.spec = {**job.spec, "interactive_config": {"ports": [port]}}
    reader = Browser(served.api)
    reader.sign_in(served.api.make_key(Role.VIEWER, "default"))

    page = reader.get(f"/ui/jobs/{job_id}/access")

    assert "/ports/ui/open" not in page.html
    assert "that its document names" in page.text
    assert reader.post(f"/ui/jobs/{job_id}/ports/ui/open").status_code == 403


def test_a_waiting_job_offers_neither_ports_nor_a_shell(served: Browser):
    job_id = make(served, state=JobState.QUEUED)

    text = served.get(f"/ui/jobs/{job_id}/access").text

    assert "once the job runs" in text
    assert "trainyard shell" not in text


def test_a_terminal_gets_a_ticket_that_only_the_dashboards_own_pages_can_use(web: Browser):
    job_id = open_job(web.api)
    web.get(f"/ui/jobs/{job_id}/access")

    answer = web.post(f"/ui/jobs/{job_id}/terminal", {"rows": "30", "columns": "100"})

    assert answer.status_code == 201
    assert "no-store" in answer.headers["Cache-Control"]
    made: Any = answer.json
    protocol, offered = made["protocols"]
    session_id = made["url"].split("/")[-2]
    assert made["url"] == f"ws://localhost/v1/sessions/{session_id}/stream"
    assert protocol == PROTOCOL
    plane, ticket = web.api.app.extensions["trainyard"].plane, offered.removeprefix(PAGE_TICKET)
    for origin in ("", "https://evil.example", "https://localhost"):
        with pytest.raises(Forbidden, match="its own origin"):
            attending.redeem(plane, SECRET_KEY, ticket, session_id=session_id, gateway_id="g", origin=origin)
    found = attending.redeem(plane, SECRET_KEY, ticket, session_id=session_id, gateway_id="g", origin=SITE)
    assert (found.kind, found.request["rows"], found.request["columns"]) == ("shell", 30, 100)


def test_a_terminal_of_a_page_with_tls_connects_with_tls_where_a_proxy_ends_it(web: Browser):
    job_id = open_job(web.api)
    web.get(f"/ui/jobs/{job_id}/access")

    made: Any = web.post(f"/ui/jobs/{job_id}/terminal", headers={"Origin": "https://localhost"}).json

    assert made["url"].startswith("wss://localhost/v1/sessions/")


def test_a_terminal_is_opened_by_nothing_but_a_form_of_this_sign_in(web: Browser):
    job_id = open_job(web.api)
    web.get(f"/ui/jobs/{job_id}/access")
    reader = Browser(web.api)
    reader.sign_in(web.api.make_key(Role.VIEWER, "default"))

    assert web.post(f"/ui/jobs/{job_id}/terminal", headers={"Origin": "https://evil.example"}).status_code == 403
    assert web.post(f"/ui/jobs/{job_id}/terminal", {"csrf": "00"}).status_code == 403
    assert reader.post(f"/ui/jobs/{job_id}/terminal").status_code == 403
    assert web.post(f"/ui/jobs/{job_id}/terminal", {"rank": "9"}).status_code == 400
    assert web.post(f"/ui/jobs/{job_id}/terminal", {"rows": "0"}).status_code == 422
    assert web.api.get(f"/v1/jobs/{job_id}/sessions")["sessions"] == []


def test_pages_may_connect_to_the_gateway_of_sessions_and_to_nothing_else(sqlite_url: str, tmp_path: Path):
    bound = Database().bind(engine_on(sqlite_url))
    address = "https://gateway.example.org/trainyard"
    made = Api(bound, tmp_path, TRAINYARD_WEB_ENABLED="true", TRAINYARD_GATEWAY_SESSIONS_URL=address)
    browser = Browser(made)
    browser.sign_in(made.key)
    job_id = open_job(made)

    policy = browser.client.get(f"/ui/jobs/{job_id}/access").headers["Content-Security-Policy"]
    other = browser.client.get(f"/ui/jobs/{job_id}").headers["Content-Security-Policy"]
    made.close()
    bound.close()

    assert "connect-src 'self' wss://gateway.example.org/trainyard/v1/sessions/;" in policy
    assert "connect-src 'self';" in other
    assert "unsafe" not in policy


def test_sessions_are_shown_as_text_and_can_be_ended(web: Browser):
    job_id = make(web)
    session_id = add_session(web, job_id)

    page = web.get(f"/ui/jobs/{job_id}/access")
    answer = web.post(f"/ui/jobs/{job_id}/sessions/{session_id}/end")

    assert "<b>nvidia-smi</b>" in page.text
    assert "<b>" not in page.html
    assert answer.status_code == 303
    assert "ended" in web.get(f"/ui/jobs/{job_id}/access").text


def test_a_session_names_the_instance_that_it_is_in(web: Browser):
    job_id = make(web)
    roles = [{"role": name, "resource_config": {"gpu_count": 1}, "count": 2} for name in ("trainer", "rollout")]
    with web.api.db.write() as session:
        job = session.get_one(Job, job_id)
        job.spec = {**job.spec, "resource_config": {}, "tasks": roles}
    add_session(web, job_id, rank=3)

    assert "rollout 1, rank 3" in web.get(f"/ui/jobs/{job_id}/access").text


def test_a_reader_sees_no_sessions_and_can_end_none(web: Browser):
    job_id = make(web)
    session_id = add_session(web, job_id)
    reader = Browser(web.api)
    reader.sign_in(web.api.make_key(Role.VIEWER, "default"))

    page = reader.get(f"/ui/jobs/{job_id}/access")

    assert "nvidia-smi" not in page.text
    assert reader.post(f"/ui/jobs/{job_id}/sessions/{session_id}/end").status_code == 403


def test_a_job_that_is_kept_says_until_when_and_can_be_let_go_of(web: Browser):
    job_id = make(web, kept_until=utc_now() + timedelta(minutes=30))

    page = web.get(f"/ui/jobs/{job_id}/access")
    answer = web.post(f"/ui/jobs/{job_id}/release")

    assert "Its script has failed" in page.text
    assert answer.status_code == 303


@pytest.mark.parametrize("path", ["ports/ui/open", "release"])
def test_actions_on_jobs_of_other_projects_are_not_found(served: Browser, path: str):
    job_id = make(served)
    stranger = Browser(served.api)
    stranger.sign_in(served.api.make_key(Role.ADMIN, "elsewhere"))

    assert stranger.post(f"/ui/jobs/{job_id}/{path}").status_code == 404
