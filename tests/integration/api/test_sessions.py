"""Sessions in running jobs over HTTP: opened, listed, ended and recorded, and who may."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest

from app.domain.errors import LimitExceeded
from app.domain.lifecycle.states import JobState
from app.models import InteractiveSession, Job, Project
from app.models.base import utc_now
from app.security.permissions import Role
from app.services.interactive import attending, recordings, sessions
from tests.builders.controlled import audited, job_of
from tests.builders.interactive import make_endpoint, make_session, open_job, running_job
from tests.systems.apps import SECRET_KEY, Api
from tests.systems.system import wait_for

EXEC = {"kind": "exec", "command": ["nvidia-smi", "-L"]}


def opened(api: Api, job_id: str, body: dict[str, Any] | None = None, **request: Any) -> dict[str, Any]:
    made: dict[str, Any] = api.data(api.post(f"/v1/jobs/{job_id}/sessions", body or EXEC, **request), 201)
    return made


def refused(api: Api, job_id: str, body: dict[str, Any], status: int, **request: Any) -> dict[str, Any]:
    return api.problem(api.post(f"/v1/jobs/{job_id}/sessions", body, **request), status)


def switch(api: Api, value: str) -> None:
    api.data(api.call("PATCH", "/v1/projects/default", json={"sessions": value}))


def fill(api: Api, job_id: str) -> None:
    with api.db.write() as session:
        for _ in range(sessions.MOST_OPEN):
            make_session(session, job_id)


@contextmanager
def supervisor(api: Api, job_id: str, **endpoint: Any) -> Iterator[None]:
    """Opens the sandbox once it is asked to."""

    def open_it() -> None:
        wait_for(lambda: job_of(api, job_id).interactive_attempt, seconds=5, what="the request")
        with api.db.write() as session:
            make_endpoint(session, session.get_one(Job, job_id), **endpoint)

    thread = threading.Thread(target=open_it)
    thread.start()
    try:
        yield
    finally:
        thread.join()


def test_a_session_is_opened_with_a_ticket_for_a_gateway(api: Api):
    job_id = open_job(api)

    answer = api.post(f"/v1/jobs/{job_id}/sessions", EXEC)

    made = api.data(answer, 201)
    session_id = made["session"]["session_id"]
    assert made["url"] == f"ws://localhost/v1/sessions/{session_id}/stream"
    assert made["protocol"] == "trainyard.session.v1"
    assert answer.headers["Location"] == f"/v1/jobs/{job_id}/sessions/{session_id}"
    assert {name: made["session"][name] for name in ("kind", "rank", "command", "tty", "status", "recorded")} == {
        "kind": "exec",
        "rank": 0,
        "command": ["nvidia-smi", "-L"],
        "tty": False,
        "status": "waiting",
        "recorded": False,
    }
    plane = api.app.extensions["trainyard"].plane
    found = attending.redeem(plane, SECRET_KEY, made["ticket"], session_id=session_id, gateway_id="gateway-1")
    assert found.request == {
        "type": "exec",
        "rank": 0,
        "command": ["nvidia-smi", "-L"],
        "tty": False,
        "rows": 24,
        "columns": 80,
        "term": "xterm-256color",
    }
    assert api.get(f"/v1/jobs/{job_id}/sessions/{session_id}")["status"] == "open"
    assert audited(api, "session.start") == [
        (
            job_id,
            {
                "session": session_id,
                "kind": "exec",
                "rank": 0,
                "attempt": 1,
                "recorded": False,
                "command": ["nvidia-smi", "-L"],
            },
        )
    ]


def test_shells_have_a_terminal_and_ports_a_number(api: Api):
    job_id = open_job(api)

    shell = opened(api, job_id, {"kind": "shell", "rows": 50, "columns": 200, "term": "screen"})["session"]
    port = opened(api, job_id, {"kind": "port_forward", "port": 8888})["session"]

    assert (shell["tty"], shell["command"], shell["port"]) == (True, [], None)
    assert (port["tty"], port["command"], port["port"]) == (False, [], 8888)
    with api.db.read() as session:
        assert session.get_one(InteractiveSession, shell["session_id"]).request["columns"] == 200
        assert session.get_one(InteractiveSession, port["session_id"]).request == {"type": "connect", "port": 8888}


def test_a_repeated_request_opens_no_second_session(api: Api):
    job_id = open_job(api)
    headers = {"Idempotency-Key": "once"}

    first, second = (opened(api, job_id, headers=headers) for _ in range(2))

    assert first == second
    assert api.get(f"/v1/jobs/{job_id}/sessions")["total_count"] == 1


def test_the_sandbox_is_opened_when_it_is_first_needed(api: Api):
    job_id = running_job(api)

    with supervisor(api, job_id):
        opened(api, job_id)

    assert job_of(api, job_id).interactive_attempt == 1
    assert len(api.dispatcher.nudged) == len(job_of(api, job_id).node_names)
    opened(api, job_id)  # at once


def test_the_reason_is_told_when_a_sandbox_cannot_be_opened(api: Api):
    job_id = running_job(api)

    with supervisor(api, job_id, port=0, message="the node has no sandbox; the shell would be its own"):
        problem = refused(api, job_id, EXEC, 409)

    assert "the shell would be its own" in problem["message"]
    assert api.get(f"/v1/jobs/{job_id}/sessions")["sessions"] == []
    assert audited(api, "session.start") == []


def test_an_attempt_that_ends_meanwhile_is_told(api: Api):
    job_id = running_job(api)

    def end_it() -> None:
        wait_for(lambda: job_of(api, job_id).interactive_attempt, seconds=5, what="the request")
        with api.db.write() as session:
            job = session.get_one(Job, job_id)
            job.status, job.status_reason = JobState.FAILED, "the script failed"

    thread = threading.Thread(target=end_it)
    thread.start()
    problem = refused(api, job_id, EXEC, 409)
    thread.join()

    assert "FAILED: the script failed" in problem["message"]


@pytest.mark.parametrize("state", ["PENDING", "QUEUED", "SCHEDULING", "PAUSED", "COMPLETED", "CANCELLED"])
def test_only_running_jobs_have_sessions(api: Api, state: str):
    job_id = running_job(api, state)

    assert f"is {state}; sessions reach jobs that run" in refused(api, job_id, EXEC, 409)["message"]


def test_a_rank_that_the_job_does_not_have(api: Api):
    job_id = open_job(api)

    problem = refused(api, job_id, {**EXEC, "rank": 1}, 400)

    assert (problem["details"][0]["field"], "has one rank, 0" in problem["message"]) == ("rank", True)


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "kind"),
        ({"kind": "shell", "role": "A b"}, "role"),
        ({"kind": "shell", "role": "a", "index": -1}, "index"),
        ({"kind": "ssh"}, "kind"),
        ({"kind": "exec", "command": []}, "command"),
        ({"kind": "exec", "command": "ls"}, "command"),
        ({"kind": "exec", "command": ["a\0b"]}, "command"),
        ({"kind": "exec", "command": ["\ud800"]}, "command"),
        ({"kind": "shell", "rows": 0}, "rows"),
        ({"kind": "shell", "term": "a b"}, "term"),
        ({"kind": "shell", "rank": -1}, "rank"),
        ({"kind": "port_forward", "port": 0}, "port"),
        ({"kind": "port_forward", "port": 65536}, "port"),
        ({"kind": "shell", "user": "root"}, "user"),
    ],
)
def test_bad_requests_name_the_field(api: Api, body: dict[str, Any], field: str):
    problem = refused(api, open_job(api), body, 422)

    assert [each["field"].split(".")[0] for each in problem["details"]] == [field]


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"kind": "exec"}, "command"),
        ({"kind": "exec", "command": ["x" * 30_000] * 3}, "command"),
        ({"kind": "exec", "command": ["ls"], "port": 80}, "port"),
        ({"kind": "shell", "command": ["ls"]}, "command"),
        ({"kind": "shell", "tty": True}, "tty"),
        ({"kind": "port_forward"}, "port"),
        ({"kind": "port_forward", "port": 80, "tty": True}, "tty"),
    ],
)
def test_what_does_not_fit_the_kind_names_the_field(api: Api, body: dict[str, Any], field: str):
    problem = refused(api, open_job(api), body, 400)

    assert [each["field"] for each in problem["details"]] == [field]


def test_a_project_may_switch_sessions_off(api: Api):
    job_id = open_job(api)
    switch(api, "off")

    assert "switched off in the project default" in refused(api, job_id, EXEC, 403)["message"]
    assert api.get("/v1/projects/default")["sessions"] == "off"
    assert audited(api, "project.patch") == [("default", {"changes": {"sessions": "off"}})]
    assert api.problem(api.call("PATCH", "/v1/projects/default", json={"sessions": "on"}), 422)


def test_a_project_may_have_its_sessions_recorded(api: Api):
    job_id = open_job(api)
    switch(api, "recorded")

    shell = opened(api, job_id, {"kind": "shell"})["session"]
    port = opened(api, job_id, {"kind": "port_forward", "port": 80})["session"]

    assert (shell["recorded"], port["recorded"]) == (True, False)
    place = f"/v1/jobs/{job_id}/sessions/{shell['session_id']}/recording"
    api.problem(api.call("GET", place), 404)
    storage = api.app.extensions["trainyard"].plane.storage
    recordings.write_piece(storage, job_id, shell["session_id"], number=0, data=b'{"version": 2}\n')
    answer = api.call("GET", place)
    assert (answer.status_code, answer.data) == (200, b'{"version": 2}\n')
    assert answer.mimetype == "application/x-asciicast"
    api.problem(api.call("GET", f"/v1/jobs/{job_id}/sessions/{port['session_id']}/recording"), 404)


def test_what_must_be_recorded_needs_room(api: Api):
    job_id = open_job(api)
    switch(api, "recorded")
    with api.db.write() as session:
        session.get_one(Project, "default").quota = {"storage_gb": 0}

    refused(api, job_id, {"kind": "shell"}, 403)
    opened(api, job_id, {"kind": "port_forward", "port": 80})


def test_a_project_has_a_limit_of_open_sessions(api: Api):
    job_id = open_job(api)
    fill(api, job_id)

    assert f"has {sessions.MOST_OPEN} open sessions" in refused(api, job_id, EXEC, 429)["message"]
    with api.db.write() as session:
        session.query(InteractiveSession).limit(1).one().ended_at = utc_now()
    opened(api, job_id)
    refused(api, job_id, EXEC, 429)


def test_a_session_is_ended_on_request(api: Api):
    job_id = open_job(api)
    made = opened(api, job_id)
    session_id = made["session"]["session_id"]
    plane = api.app.extensions["trainyard"].plane
    attending.redeem(plane, SECRET_KEY, made["ticket"], session_id=session_id, gateway_id="gateway-1")

    for _ in range(2):
        asked = api.data(api.call("DELETE", f"/v1/jobs/{job_id}/sessions/{session_id}"), 202)

    assert asked["status"] == "open"
    assert attending.verdicts(api.db, [session_id]) == {session_id: "ended on request"}
    assert len(audited(api, "session.end_request")) == 1


def test_a_session_that_nobody_has_opened_ends_at_once(api: Api):
    job_id = open_job(api)
    session_id = opened(api, job_id)["session"]["session_id"]

    ended = api.data(api.call("DELETE", f"/v1/jobs/{job_id}/sessions/{session_id}"), 202)

    assert (ended["status"], ended["end_reason"], ended["seconds"]) == ("ended", "ended on request", None)
    assert [data["session"] for _, data in audited(api, "session.end")] == [session_id]


def test_sessions_are_listed_the_newest_first(api: Api):
    job_id = open_job(api)
    made = [opened(api, job_id)["session"]["session_id"] for _ in range(3)]

    first = api.get(f"/v1/jobs/{job_id}/sessions?page_size=2")
    rest = api.get(f"/v1/jobs/{job_id}/sessions?page_size=2&page_token={first['next_page_token']}")

    assert [each["session_id"] for each in (*first["sessions"], *rest["sessions"])] == made[::-1]
    assert first["total_count"] == 3


def test_other_projects_see_nothing_and_viewers_open_nothing(api: Api):
    job_id, other = open_job(api), open_job(api)
    session_id = opened(api, job_id)["session"]["session_id"]
    foreign, viewer = api.make_key(Role.ADMIN, "team-b"), api.make_key(Role.VIEWER)
    own = f"/v1/jobs/{job_id}/sessions"

    assert refused(api, job_id, EXEC, 404, key=foreign) == refused(api, job_id, EXEC, 404, key=foreign)
    for method, path in (("GET", own), ("GET", f"{own}/{session_id}"), ("DELETE", f"{own}/{session_id}")):
        assert api.call(method, path, key=foreign).status_code == 404
        assert api.call(method, path, key=viewer).status_code == 403
    assert api.call("GET", f"/v1/jobs/{other}/sessions/{session_id}").status_code == 404
    assert api.call("GET", f"{own}/..%2f").status_code == 404
    refused(api, job_id, EXEC, 403, key=viewer)
    opened(api, job_id, key=api.make_key(Role.USER))


def test_only_what_is_kept_is_released(api: Api):
    job_id = running_job(api)
    assert "nothing of it is kept" in api.problem(api.post(f"/v1/jobs/{job_id}/release"), 409)["message"]
    with api.db.write() as session:
        session.get_one(Job, job_id).kept_until = utc_now()

    for _ in range(2):
        answered = api.data(api.post(f"/v1/jobs/{job_id}/release"), 202)

    assert answered["kept_until"] is not None
    assert job_of(api, job_id).release_attempt == 1
    assert audited(api, "job.release") == [(job_id, {})]


def test_few_requests_wait_for_sandboxes_at_a_time(api: Api):
    job_id = running_job(api)
    openings = api.app.extensions["trainyard"].openings
    key = api.make_key(Role.USER)
    with suppress(LimitExceeded):
        while True:
            openings.take("default")

    assert "places to wait for the sandbox" in refused(api, job_id, EXEC, 429, key=key)["message"]
    assert job_of(api, job_id).interactive_attempt is None
