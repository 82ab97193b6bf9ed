"""Ports of jobs over HTTP and for gateways: their addresses, tokens, and who may open them."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select

from app.database.engine import Database
from app.domain.errors import Conflict, CredentialsInvalid, Forbidden, NotFound
from app.domain.lifecycle.states import JobState
from app.models import ApiKey, Job, WebUser
from app.models.base import utc_now
from app.security import signed_tokens
from app.security.permissions import Caller, Role
from app.services.access import api_keys
from app.services.interactive import ports
from tests.builders.controlled import SCRIPT, audited
from tests.builders.interactive import make_endpoint, open_job, running_job
from tests.systems.apps import SECRET_KEY, Api

APP = {"name": "app", "port": 8080}
RAW = {"name": "raw", "port": 9, "protocol": "tcp"}


@pytest.fixture
def served(database: Database, tmp_path: Path) -> Iterator[Api]:
    """An installation that serves ports."""
    made = Api(database, tmp_path, TRAINYARD_GATEWAY_PORTS_URL="http://jobs.localhost:8001")
    yield made
    made.close()


def job_with(api: Api, *listed: dict[str, Any], state: str = "TRAINING", **config: Any) -> str:
    """A running job with these ports, whose sandbox is open."""
    return open_job(api, state, training_config=SCRIPT, interactive_config={"ports": [*listed], **config})


def caller_of(api: Api, key: str) -> Caller:
    return api_keys.authenticate(api.db, key)


def plane_of(api: Api) -> Any:
    return api.app.extensions["trainyard"].plane


def may(api: Api, key: str, job_id: str, name: str = "app") -> bool:
    """Whether the caller may open it, which must be what the list says, and what an address needs."""
    shown = next(each for each in api.get(f"/v1/jobs/{job_id}/ports", key=key)["ports"] if each["name"] == name)
    asked = api.post(f"/v1/jobs/{job_id}/ports/{name}/url", key=key)
    try:
        ports.by_caller(plane_of(api), caller_of(api, key), job_id, name)
        may_open = True
    except Forbidden:
        may_open = False
    assert (shown["may_open"], asked.status_code) == (may_open, 200 if may_open else 403)
    return may_open


def of_person(api: Api, name: str, *, key_name: str = "", **columns: Any) -> str:
    """A key of a person of an identity provider."""
    key = api.make_key(Role.USER, name=key_name or name)
    with api.db.write() as session:
        person = WebUser(id=f"user-{name}", issuer="https://id.example.com", subject=f"sub-{name}", **columns)
        session.add(person)
        session.scalars(select(ApiKey).where(ApiKey.id == caller_of(api, key).key_id)).one().user_id = person.id
    return key


def test_a_job_is_shown_with_its_ports(served: Api):
    job_id = job_with(served, APP, RAW, notebook=True)

    assert served.get(f"/v1/jobs/{job_id}")["ports"] == [
        {"name": "app", "port": 8080, "protocol": "http"},
        {"name": "raw", "port": 9, "protocol": "tcp"},
        {"name": "notebook", "port": 0, "protocol": "http"},
    ]
    base = f"http://jobs.localhost:8001/jobs/{job_id}/ports"
    found = served.get(f"/v1/jobs/{job_id}/ports")["ports"]
    assert [(each["name"], each["url"], each["may_open"]) for each in found] == [
        ("app", f"{base}/app/", True),
        ("raw", None, True),
        ("notebook", f"{base}/notebook/", True),
    ]
    assert served.get(f"/v1/jobs/{running_job(served)}")["ports"] == []


def test_what_a_job_is_asked_for_is_what_it_has(served: Api):
    config = {
        "ports": [{**APP, "authorized_users": ["alice"]}],
        "readiness_probe": {"port": 8080, "path": "/health"},
        "keep_on_failure_seconds": 60,
    }

    job_id = served.submit(training_config=SCRIPT, interactive_config=config)

    shown = served.get(f"/v1/jobs/{job_id}")
    assert shown["interactive_config"] == config
    assert (shown["ready"], shown["kept_until"]) == (None, None)
    assert served.get(f"/v1/jobs/{served.submit()}")["interactive_config"] == {}


def test_readiness_is_that_of_a_running_job(served: Api):
    job_id = job_with(served, APP)
    with served.db.write() as session:
        job = session.get_one(Job, job_id)
        job.ready, job.kept_until = True, utc_now()
    assert served.get(f"/v1/jobs/{job_id}")["ready"] is True

    with served.db.write() as session:
        session.get_one(Job, job_id).status = JobState.FAILED

    shown = served.get(f"/v1/jobs/{job_id}")
    assert (shown["ready"], shown["kept_until"]) == (None, None)


def test_an_address_has_a_token_that_opens_one_port(served: Api):
    job_id, other = job_with(served, APP, {"name": "b", "port": 2}), job_with(served, APP)

    made = served.data(served.post(f"/v1/jobs/{job_id}/ports/app/url", {"seconds": 60}))

    assert made["url"] == f"http://jobs.localhost:8001/jobs/{job_id}/ports/app/?trainyard_token={made['token']}"
    for _ in range(2):
        opened = ports.by_token(plane_of(served), SECRET_KEY, made["token"], job_id, "app")
        assert (opened.port.port, opened.endpoint is not None, opened.why) == (8080, True, "")
    for where in ((job_id, "b"), (other, "app")):
        with pytest.raises(CredentialsInvalid, match="of another port"):
            ports.by_token(plane_of(served), SECRET_KEY, made["token"], *where)
    assert audited(served, "port.open") == [(job_id, {"port": "app", "seconds": 60})]


@pytest.mark.parametrize(("purpose", "seconds"), [("interactive-port", -1), ("interactive-session", 60)])
def test_expired_and_foreign_tokens_open_nothing(served: Api, purpose: str, seconds: int):
    job_id = job_with(served, APP)
    subject = f"{job_id}/app/{caller_of(served, served.key).key_id}"

    token = signed_tokens.issue(SECRET_KEY, purpose, subject, seconds=seconds)

    with pytest.raises(CredentialsInvalid):
        ports.by_token(plane_of(served), SECRET_KEY, token, job_id, "app")


def test_a_token_ends_with_its_key(served: Api):
    job_id, key = job_with(served, APP), served.make_key(Role.VIEWER)
    token = served.data(served.post(f"/v1/jobs/{job_id}/ports/app/url", key=key))["token"]
    ports.by_token(plane_of(served), SECRET_KEY, token, job_id, "app")

    served.call("DELETE", f"/v1/keys/{caller_of(served, key).key_id}")

    with pytest.raises(CredentialsInvalid):
        ports.by_token(plane_of(served), SECRET_KEY, token, job_id, "app")


def test_who_sees_the_job_may_open_its_ports(served: Api):
    job_id = job_with(served, APP)

    assert may(served, served.make_key(Role.VIEWER), job_id)
    foreign = served.make_key(Role.ADMIN, "team-b")
    for path in ("ports", "ports/app/url"):
        method = "GET" if path == "ports" else "POST"
        assert served.call(method, f"/v1/jobs/{job_id}/{path}", key=foreign).status_code == 404
    with pytest.raises(NotFound):
        ports.by_caller(plane_of(served), caller_of(served, foreign), job_id, "app")
    with pytest.raises(Forbidden):
        ports.by_caller(plane_of(served), caller_of(served, served.make_key(Role.INFERENCE)), job_id, "app")


def test_a_notebook_is_for_those_who_submit_jobs(served: Api):
    job_id = job_with(served, notebook=True)

    assert may(served, served.make_key(Role.USER), job_id, "notebook")
    assert not may(served, served.make_key(Role.VIEWER), job_id, "notebook")


def test_named_people_and_groups_may_open_a_port(served: Api):
    named = ["key-of-ci", "ann@example.com", "user-bob", "sub-eve"]
    job_id = job_with(served, {**APP, "authorized_users": named, "authorized_groups": ["vision"]})

    assert may(served, served.make_key(Role.VIEWER, name="key-of-ci"), job_id)
    assert may(served, served.make_key(Role.ADMIN, name="boss"), job_id)
    assert may(served, of_person(served, "ann", email="Ann@Example.com", email_verified=True), job_id)
    assert may(served, of_person(served, "bob"), job_id)
    assert may(served, of_person(served, "eve"), job_id)
    assert may(served, of_person(served, "tom", groups=["audio", "vision"]), job_id)
    assert not may(served, served.make_key(Role.USER, name="other"), job_id)
    assert not may(served, of_person(served, "max", groups=["audio"]), job_id)
    assert not may(served, of_person(served, "liz", email="ann@example.com"), job_id)  # not verified
    # People name their keys themselves, so that a name says nothing of them.
    assert not may(served, of_person(served, "joe", key_name="key-of-ci"), job_id)


def test_who_submitted_the_job_may_open_its_ports(served: Api):
    key = served.make_key(Role.USER, name="owner")
    job_id = job_with(served, {**APP, "authorized_users": ["stranger"]})
    assert not may(served, key, job_id)

    with served.db.write() as session:
        session.get_one(Job, job_id).created_by = caller_of(served, key).key_id

    assert may(served, key, job_id)


def test_a_notebook_is_closed_where_what_people_run_is_recorded(served: Api):
    job_id = job_with(served, APP, notebook=True)

    served.call("PATCH", "/v1/projects/default", json={"sessions": "recorded"})

    assert may(served, served.key, job_id, "app")
    assert not may(served, served.key, job_id, "notebook")
    refused = served.problem(served.post(f"/v1/jobs/{job_id}/ports/notebook/url"), 403)["message"]
    assert "is recorded" in refused
    assert "`trainyard shell`" in refused
    served.call("PATCH", "/v1/projects/default", json={"sessions": "allowed"})
    assert may(served, served.key, job_id, "notebook")


def test_a_project_without_sessions_has_no_ports(served: Api):
    job_id = job_with(served, APP)
    served.call("PATCH", "/v1/projects/default", json={"sessions": "off"})

    assert not may(served, served.key, job_id)
    assert served.post(f"/v1/jobs/{job_id}/ports/app/url").status_code == 403
    with pytest.raises(Forbidden, match="switched off"):
        ports.by_caller(plane_of(served), caller_of(served, served.key), job_id, "app")


@pytest.mark.parametrize(
    ("state", "why"), [("QUEUED", "is QUEUED and does not run"), ("PAUSED", "is PAUSED and does not run")]
)
def test_ports_of_waiting_jobs_are_not_there_yet(served: Api, state: str, why: str):
    job_id = job_with(served, APP, state=state)

    opened = ports.by_caller(plane_of(served), caller_of(served, served.key), job_id, "app")

    assert (opened.endpoint, why in opened.why) == (None, True)


def test_a_sandbox_that_is_not_open_says_why(served: Api):
    job_id = running_job(served, training_config=SCRIPT, interactive_config={"ports": [APP]})
    key = caller_of(served, served.key)
    assert "not open yet" in ports.by_caller(plane_of(served), key, job_id, "app").why

    with served.db.write() as session:
        make_endpoint(session, session.get_one(Job, job_id), port=0, message="no sandbox here")

    assert ports.by_caller(plane_of(served), key, job_id, "app").why == "no sandbox here"


def test_what_has_no_address(served: Api):
    job_id, ended = job_with(served, APP, RAW), job_with(served, APP, state="COMPLETED")
    key = caller_of(served, served.key)

    def problem(path: str, status: int, body: Any = None) -> str:
        return str(served.problem(served.post(f"/v1/jobs/{path}/url", body), status)["message"])

    assert "trainyard port-forward" in problem(f"{job_id}/ports/raw", 400)
    assert "its ports are app, raw" in problem(f"{job_id}/ports/nothing", 404)
    assert "is COMPLETED" in problem(f"{ended}/ports/app", 409)
    assert "TRAINYARD_GATEWAY_PORT_SECONDS" in problem(f"{job_id}/ports/app", 400, {"seconds": 30_000_000})
    for seconds in (0, 29, "60", 1.5):
        problem(f"{job_id}/ports/app", 422, {"seconds": seconds})
    for name, where in (("raw", job_id), ("app", ended)):
        with pytest.raises(Conflict):
            ports.by_caller(plane_of(served), key, where, name)


def test_an_installation_without_ports_says_so(api: Api):
    job_id = job_with(api, APP)

    assert api.get(f"/v1/jobs/{job_id}/ports")["ports"][0]["url"] is None
    problem = api.problem(api.post(f"/v1/jobs/{job_id}/ports/app/url"), 400)
    assert "TRAINYARD_GATEWAY_PORTS_URL" in problem["message"]
