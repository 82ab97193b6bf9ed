"""The audit trail: what is written into it, who may read which lines, and what a flood leaves behind."""

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text
from sqlalchemy.orm import Session

from app.database.engine import Database, make_engine
from app.domain.lifecycle.states import JobState
from app.models import AuditEntry, Job
from app.models.base import utc_now
from app.security.permissions import Role
from app.services.access.denied_requests import MAX_PER_SOURCE
from app.services.lifecycle import audit, transitions
from tests.builders.factories import make_attempt, make_job, make_node
from tests.systems.apps import Api

pytestmark = pytest.mark.both_databases

UNKNOWN_JOB = "job-01900000-0000-7000-8000-000000000000"


def entries(api: Api, query: str = "", *, key: str | None = None) -> list[Any]:
    found: list[Any] = api.get(f"/v1/audit?page_size=100&order_by=created_at&{query}", key=key)["entries"]
    return found


def logged(api: Api, query: str = "") -> list[tuple[str, str]]:
    """(action, target) of the lines."""
    return [(entry["action"], entry["target"]) for entry in entries(api, query)]


def key_id(api: Api, name: str) -> str:
    return next(str(key["key_id"]) for key in api.get("/v1/keys?page_size=100")["keys"] if key["name"] == name)


def cancel_and_fail(session: Session, job_id: str) -> None:
    transitions.transition(session, session.get_one(Job, job_id), JobState.CANCELLED, actor="x")
    raise RuntimeError("on purpose")


def test_every_change_of_a_jobs_state_is_a_line(api: Api) -> None:
    with api.db.write() as session:
        job = make_job(session)
        transitions.transition(session, job, JobState.SCHEDULING, actor="planner", reason="placed", message="on local")
        transitions.transition(session, job, JobState.QUEUED, actor="planner")

    first, second = entries(api, f"target={job.id}")

    assert (first["action"], first["actor"], first["project"]) == ("job.status", "planner", "default")
    assert first["data"] == {"from": "QUEUED", "to": "SCHEDULING"}
    assert first["message"] == "on local"
    assert (first["request_id"], first["address"], first["outcome"]) == ("", "", "done")
    assert second["data"] == {"from": "SCHEDULING", "to": "QUEUED"}


def test_a_transition_that_is_not_made_leaves_no_line(api: Api) -> None:
    with api.db.write() as session:
        job_id = make_job(session).id
    with pytest.raises(RuntimeError, match="on purpose"), api.db.write() as session:
        cancel_and_fail(session, job_id)

    assert entries(api, f"target={job_id}") == []


def test_a_line_says_which_request_from_where_it_comes(api: Api) -> None:
    answer = api.post("/v1/projects", {"name": "team-a"})

    (line,) = entries(api, "action=project.create&target=team-a")

    assert line["request_id"] == answer.headers["X-Request-ID"]
    assert line["address"] == "127.0.0.1"
    assert line["actor"].startswith("key-")
    assert api.get(f"/v1/audit/{line['id']}") == line


def test_what_is_done_to_jobs_is_written_with_who_did_it(api: Api) -> None:
    member = api.make_key(Role.USER, name="member-2")
    job_id = api.submit(key=member)
    with api.db.write() as session:
        make_attempt(session, session.get_one(Job, job_id), make_node(session))
    for _ in range(2):
        api.call("POST", f"/v1/jobs/{job_id}/cancel", key=member, json={"reason": "enough"})

    lines = entries(api, f"target={job_id}")

    assert [(line["action"], line["message"]) for line in lines] == [("job.submit", ""), ("job.cancel", "enough")]
    assert {line["actor"] for line in lines} == {key_id(api, "member-2")}


def test_the_address_is_what_the_configured_proxy_saw(sqlite_url: str, tmp_path: Path) -> None:
    db = Database().bind(make_engine(sqlite_url))
    api = Api(db, tmp_path, TRAINYARD_API_PROXIES="1")

    api.call("POST", "/v1/projects", json={"name": "team-a"}, headers={"X-Forwarded-For": "6.6.6.6, 192.0.2.7"})

    assert entries(api, "action=project.create")[0]["address"] == "192.0.2.7"
    db.close()


def test_what_is_done_to_keys_and_projects_is_written(api: Api) -> None:
    api.post("/v1/projects", {"name": "team-a"})
    api.call("PATCH", "/v1/projects/team-a", json={"description": "first"})
    made = api.data(api.post("/v1/keys", {"project": "team-a", "name": "ci"}), 201)["key_id"]
    renewed = api.data(api.post(f"/v1/keys/{made}/rotate", {"grace_seconds": 60}), 201)["key_id"]
    api.call("DELETE", f"/v1/keys/{made}")
    api.call("DELETE", "/v1/projects/team-a")

    assert logged(api, "project=team-a") == [
        ("project.create", "team-a"),
        ("project.patch", "team-a"),
        ("key.create", made),
        ("key.rotate", made),
        ("key.revoke", made),
        ("key.revoke", renewed),
        ("project.delete", "team-a"),
    ]


def test_lines_hold_nothing_that_a_key_is_worth(api: Api) -> None:
    made = api.data(api.post("/v1/keys", {"name": "ci"}), 201)
    api.data(api.post(f"/v1/keys/{made['key_id']}/rotate"), 201)
    api.call("GET", "/v1/jobs", key=made["key"][:-1])

    said = str(entries(api))

    assert made["key"][3:] not in said
    assert made["secret_key"] not in said


def test_denied_attempts_are_written_with_what_is_known(api: Api) -> None:
    viewer = api.make_key(Role.VIEWER, name="viewer")
    expired = api.make_key(Role.USER, expires_days=0, name="expired")
    api.client.get("/v1/jobs")
    api.call("GET", "/v1/jobs", key="nonsense")
    api.call("GET", "/v1/jobs", key=expired)
    api.call("POST", "/v1/jobs", key=viewer, json={})

    lines = entries(api, "action=auth.denied&outcome=denied")

    assert [(line["actor"], line["project"], line["target"], line["data"]) for line in lines] == [
        ("anonymous", None, "GET /v1/jobs", {"code": "AUTH_TOKEN_MISSING"}),
        ("anonymous", None, "GET /v1/jobs", {"code": "AUTH_TOKEN_INVALID"}),
        (key_id(api, "expired"), "default", "GET /v1/jobs", {"code": "AUTH_TOKEN_INVALID"}),
        (key_id(api, "viewer"), "default", "POST /v1/jobs", {"code": "AUTHZ_PERMISSION_DENIED"}),
    ]
    assert {line["address"] for line in lines} == {"127.0.0.1"}
    assert all(line["request_id"].startswith("req_") and line["message"] for line in lines)


def test_reaching_for_another_projects_things_is_written_and_only_super_admins_read_of_it(api: Api) -> None:
    with api.db.write() as session:
        foreign = make_job(session, project="other").id
    stranger = api.make_key(Role.ADMIN, "mine", name="stranger")
    api.make_key(Role.USER, "other", name="theirs")
    their_key = key_id(api, "theirs")
    attempts = (
        f"/v1/jobs/{foreign}",
        f"/v1/keys/{their_key}",
        "/v1/projects/other",
        "/v1/jobs?project=other",
        f"/v1/jobs/{UNKNOWN_JOB}",
    )
    answers = [api.call("GET", path, key=stranger).status_code for path in attempts]
    answers.append(api.call("GET", "/v1/jobs", key=stranger, headers={"X-Project": "other"}).status_code)

    lines = entries(api, "action=auth.denied")

    assert answers == [404] * 6
    assert [line["target"] for line in lines] == [
        f"GET /v1/jobs/{foreign}",
        f"GET /v1/keys/{their_key}",
        "GET /v1/projects/other",
        "GET /v1/jobs",
        "GET /v1/jobs",
    ]
    assert {line["actor"] for line in lines} == {key_id(api, "stranger")}
    assert all(line["data"]["foreign"] for line in lines)
    # A line would tell the stranger's admin that the thing exists.
    assert entries(api, "action=auth.denied", key=stranger) == []
    assert api.call("GET", f"/v1/audit/{lines[0]['id']}", key=stranger).status_code == 404


def test_a_flood_of_wrong_keys_fills_a_few_lines(api: Api) -> None:
    for _ in range(120):
        api.call("GET", "/v1/jobs", key="nonsense")

    lines = entries(api, "action=auth.denied")

    assert len(lines) == MAX_PER_SOURCE + 1
    assert lines[-1]["data"]["left_out"] == 100 - MAX_PER_SOURCE - 1


def test_a_refusal_is_answered_also_when_it_cannot_be_written(sqlite_api: Api) -> None:
    with sqlite_api.db.write() as session:
        session.execute(text("DROP TABLE audit_entry"))

    assert sqlite_api.call("GET", "/v1/jobs", key="nonsense").status_code == 401


def test_texts_from_outside_are_stored_without_what_harms(api: Api) -> None:
    api.client.get("/v1/projects/%00%1b[31m%ff" + "x" * 500)
    with api.db.write() as session:
        audit.record(session, actor="a" * 500, action="db.prune", project=None, message="\0\ud800 ok\nyes")

    denied, pruned = entries(api, "action=auth.denied")[0], entries(api, "action=db.prune")[0]

    assert len(denied["target"]) == 128
    assert not {"\0", "\x1b"} & set(denied["target"])
    assert (pruned["actor"], pruned["message"]) == ("a" * 96, "\ufffd\ufffd ok\nyes")


def test_lines_are_filtered(api: Api) -> None:
    start = utc_now() - timedelta(hours=1)
    with api.db.write() as session:
        for number, (actor, action) in enumerate(
            [("x", "queue.patch"), ("y", "queue.create"), ("x", "node.drain"), ("x", "queuer.patch")]
        ):
            session.add(
                AuditEntry(
                    id=f"audit-{number}",
                    at=start + timedelta(minutes=number),
                    actor=actor,
                    action=action,
                    project=None,
                    target=f"t{number % 2}",
                )
            )

    def ids(query: str) -> list[str]:
        return [entry["id"] for entry in entries(api, f"{query}&before=2100-01-01T00:00:00Z")]

    assert ids("actor=x") == ["audit-0", "audit-2", "audit-3"]
    assert ids("action=queue") == ["audit-0", "audit-1"]
    assert ids("action=queue.patch") == ["audit-0"]
    assert ids("target=t1") == ["audit-1", "audit-3"]
    assert ids("outcome=denied") == []
    assert ids(f"actor=x&after={start.isoformat().replace('+00:00', 'Z')}") == ["audit-2", "audit-3"]
    early = (start + timedelta(minutes=1)).isoformat().replace("+00:00", "Z")
    assert [entry["id"] for entry in entries(api, f"before={early}")] == ["audit-0"]


def test_pages_of_lines_stay_put_while_lines_are_added(api: Api) -> None:
    with api.db.write() as session:
        for number in range(5):
            audit.record(session, actor="x", action="node.drain", project=None, target=str(number))

    first = api.get("/v1/audit?actor=x&page_size=2")
    with api.db.write() as session:
        audit.record(session, actor="x", action="node.drain", project=None, target="new")
    second = api.get(f"/v1/audit?actor=x&page_size=2&page_token={first['next_page_token']}")

    assert [entry["target"] for entry in first["entries"] + second["entries"]] == ["4", "3", "2", "1"]


@pytest.mark.parametrize(
    ("query", "status"),
    [
        ("action=Key", 422),
        ("action=a.b.c", 422),
        ("outcome=perhaps", 422),
        ("after=yesterday", 422),
        ("order_by=actor", 422),
        ("actor=", 422),
        ("nothing=1", 422),
        ("page_token=x", 400),
    ],
)
def test_filters_that_mean_nothing_are_refused(sqlite_api: Api, query: str, status: int) -> None:
    sqlite_api.problem(sqlite_api.call("GET", f"/v1/audit?{query}"), status)


def test_who_may_read_which_lines(api: Api) -> None:
    admin, stranger = api.make_key(Role.ADMIN), api.make_key(Role.ADMIN, "other")
    with api.db.write() as session:
        audit.record(session, actor="x", action="job.delete", project="default", target="mine")
        audit.record(session, actor="x", action="job.delete", project="other", target="theirs")
        audit.record(session, actor="x", action="node.drain", project=None, target="of the cluster")

    def targets(key: str | None, **more: Any) -> list[str]:
        found = api.get("/v1/audit?actor=x&order_by=created_at", key=key, **more)["entries"]
        return [entry["target"] for entry in found]

    assert targets(admin) == ["mine"]
    assert targets(stranger) == ["theirs"]
    assert targets(None) == ["mine", "theirs", "of the cluster"]
    assert targets(None, headers={"X-Project": "other"}) == ["theirs"]
    assert api.call("GET", "/v1/audit?project=other", key=admin).status_code == 404
    for role in (Role.VIEWER, Role.USER):
        assert api.call("GET", "/v1/audit", key=api.make_key(role)).status_code == 403
