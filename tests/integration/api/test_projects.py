"""Projects over HTTP: made, changed, deleted, and acted in by X-Project."""

import threading
from typing import Any

import pytest
from sqlalchemy import select
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from app.domain.lifecycle.states import JobState
from app.http.operation import operation_of
from app.models import ApiKey, Inspection, Project, QueueWait, SweepCount, Webhook
from app.security.permissions import Role
from tests.builders.controlled import audited
from tests.builders.factories import make_document, make_job
from tests.systems.apps import Api

IN_TEAM_A = {"X-Project": "team-a"}


def names(api: Api, items: str, field: str, path: str, **request: Any) -> list[str]:
    return [item[field] for item in api.get(path, **request)[items]]


def test_a_project_is_made_read_and_changed(api: Api) -> None:
    answer = api.post("/v1/projects", {"name": "team-a", "description": "speech"})
    made = api.data(answer, 201)

    assert (made["name"], made["description"]) == ("team-a", "speech")
    assert answer.headers["Location"] == "/v1/projects/team-a"
    assert {**api.get(answer.headers["Location"]), "usage": None} == {**made, "usage": None}
    changed = api.data(api.call("PATCH", "/v1/projects/team-a", json={"description": "vision"}))
    assert changed == {**made, "description": "vision"}
    assert {**api.get("/v1/projects/team-a"), "usage": None} == {**changed, "usage": None}


@pytest.mark.both_databases
def test_services_that_jobs_may_connect_to(api: Api) -> None:
    made = api.data(api.post("/v1/projects", {"name": "team-a", "egress": ["pypi.org:443"]}), 201)
    services = ["*.huggingface.co:443", "192.0.2.1:8080"]
    changed = api.data(api.call("PATCH", "/v1/projects/team-a", json={"egress": services}))
    refused = [
        api.problem(api.call("PATCH", "/v1/projects/team-a", json={"egress": [bad]}), 422)["details"][0]["field"]
        for bad in (
            "pypi.org",
            "https://pypi.org:443",
            "PyPI.org:443",
            "*:443",
            "pypi.org:65536",
            "a.*.org:443",
            "x:0",
            "[::1]:443",
            "x:1234567",
        )
    ]

    assert (made["egress"], changed["egress"]) == (["pypi.org:443"], services)
    assert set(refused) == {"egress.0"}


def test_job_that_asks_for_a_gate_needs_services(api: Api) -> None:
    document = make_document(resource_config={"gpu_count": 1, "network": "gate"})
    refused = api.problem(api.post("/v1/jobs", document), 400)
    api.call("PATCH", "/v1/projects/default", json={"egress": ["pypi.org:443"]})
    on_several = make_document(resource_config={"gpu_count": 1, "network": "gate", "node_count": 2})

    assert (refused["details"][0]["field"], "projects egress default --add" in refused["message"]) == (
        "resource_config.network",
        True,
    )
    assert api.post("/v1/jobs", document).status_code == 201
    assert api.problem(api.post("/v1/jobs", on_several), 400)["details"][0]["field"] == "resource_config.network"


@pytest.mark.both_databases
def test_job_makes_a_claim_where_its_project_may(api: Api) -> None:
    mounts = [{"path": f"/{name}", "type": "claim", "claim": name, "create": name == "new"} for name in ("old", "new")]
    training = {"framework": {"type": "CUSTOM", "custom_command": ["true"]}, "base_model": {"model_id": "none"}}
    document = make_document(training_config=training, resource_config={"gpu_count": 1, "mounts": mounts})
    assert api.get("/v1/projects/default")["claims"] == "create"
    assert api.post("/v1/jobs", document).status_code == 201

    changed = api.data(api.call("PATCH", "/v1/projects/default", json={"claims": "use"}))
    refused = api.problem(api.post("/v1/jobs", document), 400)
    document["resource_config"]["mounts"][1]["create"] = False

    assert changed["claims"] == "use"
    assert refused["details"][0]["field"] == "resource_config.mounts.1.create"
    assert "trainyard projects change default --claims create" in refused["message"]
    assert api.post("/v1/jobs", document).status_code == 201
    assert audited(api, "project.patch") == [("default", {"changes": {"claims": "use"}})]
    assert api.problem(api.call("PATCH", "/v1/projects/default", json={"claims": "none"}), 422)
    assert api.data(api.post("/v1/projects", {"name": "readers", "claims": "use"}), 201)["claims"] == "use"
    assert api.problem(api.call("PATCH", "/v1/projects/default", json={"auto_services": True}), 422)
    made = api.data(api.post("/v1/projects", {"name": "askers", "auto_services": "off"}), 201)
    assert (made["auto_services"], api.get("/v1/projects/default")["auto_services"]) == ("off", "default")


@pytest.mark.both_databases
def test_a_name_is_taken_once(api: Api) -> None:
    api.post("/v1/projects", {"name": "team-a"})

    problem = api.problem(api.post("/v1/projects", {"name": "team-a"}), 409)

    assert problem["code"] == "CONFLICT"
    assert "PATCH /v1/projects/team-a" in problem["message"]


def test_the_same_request_is_answered_once_more(api: Api) -> None:
    request = {"headers": {"Idempotency-Key": "k-1"}}
    first = api.post("/v1/projects", {"name": "team-a"}, **request)
    again = api.post("/v1/projects", {"name": "team-a"}, **request)

    assert (first.status_code, again.status_code) == (201, 201)
    assert again.headers["Idempotency-Replayed"] == "true"


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "name"),
        ({"name": ""}, "name"),
        ({"name": "Team A"}, "name"),
        ({"name": "-a"}, "name"),
        ({"name": "a" * 64}, "name"),
        ({"name": "a\n"}, "name"),
        ({"name": 1}, "name"),
        ({"name": "a", "description": "x" * 256}, "description"),
        ({"name": "a", "owner": "me"}, "owner"),
    ],
)
def test_what_is_no_project_is_refused(sqlite_api: Api, body: dict[str, Any], field: str) -> None:
    problem = sqlite_api.problem(sqlite_api.post("/v1/projects", body), 422)

    assert problem["details"][0]["field"] == field


@pytest.mark.parametrize("method", ["PATCH", "DELETE"])
def test_a_project_that_is_not_there_is_missing(api: Api, method: str) -> None:
    assert api.call(method, "/v1/projects/nothing", json={}).status_code == 404


@pytest.mark.both_databases
def test_a_project_without_jobs_is_deleted_with_its_keys(api: Api) -> None:
    member = api.make_key(Role.ADMIN, "team-a")
    with api.db.write() as session:
        session.add(Webhook(id="hook-1", project="team-a", url="https://x", event_types=[], sealed_secret=""))
        session.add(Inspection(id="look-1", project="team-a"))
    assert api.call("GET", "/v1/jobs", key=member).status_code == 200

    answer = api.call("DELETE", "/v1/projects/team-a")

    assert (answer.status_code, answer.get_data()) == (204, b"")
    assert api.problem(api.call("GET", "/v1/jobs", key=member), 401)["code"] == "AUTH_TOKEN_INVALID"
    assert api.call("GET", "/v1/projects/team-a").status_code == 404
    assert api.call("DELETE", "/v1/projects/team-a").status_code == 404
    with api.db.read() as session:
        left = [session.scalars(select(model.project)).all() for model in (ApiKey, Webhook, Inspection)]
    assert all("team-a" not in projects for projects in left)


def test_a_new_project_of_the_same_name_has_none_of_the_old_keys(api: Api) -> None:
    member = api.make_key(Role.ADMIN, "team-a")
    api.call("DELETE", "/v1/projects/team-a")
    api.post("/v1/projects", {"name": "team-a"})

    assert api.call("GET", "/v1/jobs", key=member).status_code == 401


def test_a_new_project_of_the_same_name_learns_nothing_of_the_old_one(api: Api) -> None:
    api.make_key(Role.ADMIN, "team-a", name="of the old one")
    with api.db.write() as session:
        session.add(QueueWait(project="team-a", queue="default", up_to_seconds=1, attempts=3, waited_seconds=1.0))
        session.add(SweepCount(project="team-a", kind="suggestion", up_to_ms=10, count=3, seconds=0.01))
    old = api.get("/v1/audit?project=team-a")["entries"]
    api.call("DELETE", "/v1/projects/team-a")
    api.post("/v1/projects", {"name": "team-a"})
    admin = api.make_key(Role.ADMIN, "team-a")

    seen = api.get("/v1/audit", key=admin)["entries"]

    assert [line["action"] for line in seen] == ["key.create", "project.create"]
    assert api.call("GET", f"/v1/audit/{old[0]['id']}", key=admin).status_code == 404
    assert api.call("GET", f"/v1/audit/{seen[0]['id']}", key=admin).status_code == 200
    metrics = api.call("GET", "/metrics", key=admin).get_data(as_text=True)
    assert not any(name in metrics for name in ("queue_wait_seconds_sum", "sweep_suggestion_seconds_sum"))
    assert len(api.get("/v1/audit?project=team-a")["entries"]) > len(seen)


def test_a_change_that_changes_nothing_is_no_line_of_the_trail(api: Api) -> None:
    api.post("/v1/projects", {"name": "team-a", "description": "a"})

    for body in ({}, {"description": "a"}, {"description": "b"}):
        api.data(api.call("PATCH", "/v1/projects/team-a", json=body))

    lines = api.get("/v1/audit?action=project.patch")["entries"]
    assert [line["data"] for line in lines] == [{"changes": {"description": "b"}}]


def test_within_a_project_nothing_is_made_that_is_beyond_it(api: Api) -> None:
    api.post("/v1/projects", {"name": "team-a"})

    key = api.problem(api.post("/v1/keys", {"role": "super_admin"}, headers=IN_TEAM_A), 400)
    project = api.problem(api.post("/v1/projects", {"name": "team-b"}, headers=IN_TEAM_A), 400)

    assert all("X-Project" in problem["message"] for problem in (key, project))
    assert [one["name"] for one in api.get("/v1/projects?order_by=name")["projects"]] == ["default", "team-a"]


@pytest.mark.both_databases
def test_a_project_with_jobs_stays_and_says_how_many(api: Api) -> None:
    member = api.make_key(Role.USER, "team-a")
    with api.db.write() as session:
        make_job(session, project="team-a", state=JobState.COMPLETED)
        make_job(session, project="team-a")

    problem = api.problem(api.call("DELETE", "/v1/projects/team-a"), 409)

    assert "2 jobs" in problem["message"]
    assert api.call("GET", "/v1/jobs", key=member).status_code == 200


def test_the_default_project_stays(api: Api) -> None:
    assert "default" in api.problem(api.call("DELETE", "/v1/projects/default"), 409)["message"]


@pytest.mark.both_databases
def test_a_job_submitted_while_its_project_goes_is_refused_and_not_lost(api: Api) -> None:
    """The first request wins, the other one is refused, and neither is an internal error."""
    api.post("/v1/projects", {"name": "team-a"})
    statuses: dict[str, int] = {}
    together = threading.Barrier(2)

    def call(name: str, method: str, path: str, **request: Any) -> None:
        together.wait()
        statuses[name] = api.call(method, path, **request).status_code

    threads = [
        threading.Thread(
            target=call, args=("submit", "POST", "/v1/jobs?project=team-a"), kwargs={"json": make_document()}
        ),
        threading.Thread(target=call, args=("delete", "DELETE", "/v1/projects/team-a")),
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert (statuses["submit"], statuses["delete"]) in {(201, 409), (404, 204), (409, 204)}


def add_key_of_nowhere(session: Session) -> None:
    session.add(
        ApiKey(
            id="key-x",
            project="nowhere",
            role="user",
            prefix="ty_x",
            secret_hash="",
            access_key="a",
            sealed_secret_key="",
        )
    )
    session.flush()


@pytest.mark.both_databases
def test_what_refers_to_something_that_went_is_a_conflict(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(IntegrityError) as refused, api.db.write() as session:
        add_key_of_nowhere(session)
    monkeypatch.setitem(api.app.view_functions, "access.list_keys", _raising(api, refused.value))

    problem = api.problem(api.call("GET", "/v1/keys"), 409)

    assert problem["code"] == "CONFLICT"
    assert "INSERT" not in problem["message"]


def _raising(api: Api, error: Exception) -> Any:
    def view(**_values: Any) -> None:
        raise error

    setattr(view, "operation", operation_of(api.app.view_functions["access.list_keys"]))  # noqa: B010  a view is a function
    return view


def test_a_super_admin_acts_within_the_project_that_the_header_names(api: Api) -> None:
    member = api.make_key(Role.ADMIN, "team-a", name="member")
    api.make_key(Role.USER, "team-b", name="other")
    elsewhere = api.submit()

    made = api.data(api.call("POST", "/v1/jobs", json=make_document(), headers=IN_TEAM_A), 201)["job_id"]

    assert api.get(f"/v1/jobs/{made}", key=member)["project"] == "team-a"
    assert names(api, "jobs", "job_id", "/v1/jobs", headers=IN_TEAM_A) == [made]
    assert names(api, "jobs", "job_id", "/v1/jobs") == [made, elsewhere]
    assert names(api, "keys", "name", "/v1/keys", headers=IN_TEAM_A) == ["member"]
    assert names(api, "projects", "name", "/v1/projects", headers=IN_TEAM_A) == ["team-a"]
    assert api.call("GET", f"/v1/jobs/{elsewhere}", headers=IN_TEAM_A).status_code == 404
    assert api.call("GET", "/v1/jobs?project=team-b", headers=IN_TEAM_A).status_code == 404
    key = api.data(api.call("POST", "/v1/keys", json={"name": "made there"}, headers=IN_TEAM_A), 201)
    assert key["project"] == "team-a"


def test_project_header_grants_no_access(api: Api) -> None:
    member = api.make_key(Role.ADMIN, "team-a")
    api.make_key(Role.USER, "team-b")

    def status(project: str, key: str | None) -> int:
        return api.call("GET", "/v1/jobs", key=key, headers={"X-Project": project}).status_code

    assert [status(project, member) for project in ("team-a", "team-b", "nothing", "")] == [200, 404, 404, 404]
    assert [status(project, None) for project in ("team-b", "nothing", "x" * 300, "t\xe9am")] == [200, 404, 404, 404]


def test_a_page_token_is_of_one_project(api: Api) -> None:
    api.make_key(Role.USER, "team-a")
    for _ in range(2):
        api.submit()
    token = api.get("/v1/jobs?page_size=1")["next_page_token"]

    assert api.call("GET", f"/v1/jobs?page_size=1&page_token={token}").status_code == 200
    assert api.call("GET", f"/v1/jobs?page_size=1&page_token={token}", headers=IN_TEAM_A).status_code == 400


@pytest.mark.both_databases
def test_one_of_several_concurrent_creations_makes_the_project(api: Api) -> None:
    statuses: list[int] = []
    together = threading.Barrier(4)

    def make() -> None:
        together.wait()
        statuses.append(api.post("/v1/projects", {"name": "team-a"}).status_code)

    threads = [threading.Thread(target=make) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert sorted(statuses) == [201, 409, 409, 409]


@pytest.mark.both_databases
def test_projects_that_are_made_at_once_have_numbers_of_their_own(api: Api) -> None:
    together, names = threading.Barrier(4), [f"team-{number}" for number in range(4)]

    def make(name: str) -> None:
        together.wait()
        api.data(api.post("/v1/projects", {"name": name}), 201)

    threads = [threading.Thread(target=make, args=(name,)) for name in names]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    with api.db.read() as session:
        numbers = {project.name: project.number for project in session.scalars(select(Project))}
    assert numbers.pop("default") == 1
    assert sorted(numbers) == names
    assert sorted(numbers.values()) == [2, 3, 4, 5]
