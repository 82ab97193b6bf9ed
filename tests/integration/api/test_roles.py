"""Jobs with roles over HTTP: submission, dry run, attempts, and the log lines of a role."""

from collections.abc import Iterator
from typing import Any

import pytest

from app.domain.lifecycle.states import JobState
from app.models import Job
from app.models.base import utc_now
from app.services.scheduling import planner
from app.storage.log_writer import LogWriter
from tests.builders.factories import make_document, make_node
from tests.builders.log_blocks import block
from tests.systems.apps import Api
from tests.systems.served import serving
from trainyard.client import Client, InvalidRequest

TASKS = [
    {"role": "trainer", "resource_config": {"gpu_count": 2}},
    {"role": "rollout", "count": 2, "training_config": {"environment": {"API_TOKEN": "s3cret"}}},
]


def document(*tasks: Any, **resources: Any) -> dict[str, Any]:
    framework = {"type": "CUSTOM", "custom_command": ["true"]}
    made = make_document(training_config={"framework": framework})
    return {**made, "resource_config": resources, "tasks": list(tasks or TASKS)}


@pytest.fixture
def nodes(api: Api) -> None:
    with api.db.write() as session:
        make_node(session, "n1")
        make_node(session, "n2")


@pytest.mark.usefixtures("nodes")
def test_a_dry_run_says_where_the_instances_would_start(api: Api) -> None:
    answer = api.data(api.post("/v1/jobs?dry_run=true", document()))

    assert answer["warnings"] == []
    assert [node["name"] for node in answer["plan"]["candidate_nodes"]] == ["n1", "n2"]
    assert answer["plan"]["instances"] == [
        {"role": "trainer", "index": 0, "node": "n1", "devices": [0, 1]},
        {"role": "rollout", "index": 0, "node": "n2", "devices": [0]},
        {"role": "rollout", "index": 1, "node": "n2", "devices": [1]},
    ]


@pytest.mark.usefixtures("nodes")
def test_affinity_decides_where_instances_start(api: Api) -> None:
    roles: list[dict[str, Any]] = [
        {"role": "trainer"},
        {"role": "rollout", "affinity": [{"role": "trainer", "where": "other_nodes"}]},
        {"role": "reward", "affinity": [{"role": "rollout", "where": "same_node"}]},
    ]
    answer = api.data(api.post("/v1/jobs?dry_run=true", document(*roles)))
    where = {each["role"]: each["node"] for each in answer["plan"]["instances"]}
    assert where["rollout"] == where["reward"] != where["trainer"]

    job_id = api.data(api.post("/v1/jobs", document(*roles)), 201)["job_id"]
    assert api.get(f"/v1/jobs/{job_id}")["tasks"][1]["affinity"] == roles[1]["affinity"]
    with api.db.write() as session:
        job = session.get_one(Job, job_id)
        job.status, job.queued_at = JobState.QUEUED, utc_now()
    planner.plan_once(api.db)
    instances = api.get(f"/v1/jobs/{job_id}/attempts")["attempts"][0]["instances"]
    assert {each["role"]: each["node"] for each in instances} == where


@pytest.mark.usefixtures("nodes")
def test_an_affinity_that_the_nodes_can_not_keep_is_refused(api: Api) -> None:
    alone: dict[str, Any] = {"role": "a", "count": 3, "affinity": [{"role": "a", "where": "other_nodes"}]}
    problem = api.problem(api.post("/v1/jobs", document(alone)), 400)
    assert problem["details"][0]["field"] == "tasks.0.affinity"
    assert "each a on a node of its own" in problem["message"]
    alone["affinity"][0]["required"] = False
    assert api.data(api.post("/v1/jobs?dry_run=true", document(alone)))["valid"] is True


@pytest.mark.usefixtures("nodes")
def test_a_job_shows_its_roles_and_its_attempts_the_instances(api: Api) -> None:
    job_id = api.data(api.post("/v1/jobs", document()), 201)["job_id"]

    job = api.get(f"/v1/jobs/{job_id}")

    assert job["tasks"][1]["training_config"]["environment"] == {"API_TOKEN": "***"}
    assert [task["role"] for task in job["tasks"]] == ["trainer", "rollout"]
    again = api.post("/v1/jobs?dry_run=true", {**document(), "tasks": [job["tasks"][0]]})
    assert api.data(again)["valid"] is True, "what is shown can be submitted"


def test_a_job_without_roles_shows_none(api: Api) -> None:
    assert "tasks" not in api.get(f"/v1/jobs/{api.submit()}")


@pytest.mark.usefixtures("nodes")
@pytest.mark.parametrize(
    ("tasks", "resources", "field", "says"),
    [
        ([{"role": "a", "resource_config": {"gpu_count": 3}}], {}, "tasks.0.resource_config.gpu_count", "is 2"),
        ([{"role": "a", "count": 5}], {}, "tasks", "all nodes together could not hold that"),
        ([{"role": "a"}], {"gpu_count": 2}, "resource_config.gpu_count", "give it to each role"),
    ],
)
def test_what_can_not_be_is_refused(api: Api, tasks: Any, resources: Any, field: str, says: str) -> None:
    problem = api.problem(api.post("/v1/jobs", document(*tasks, **resources)), 400)

    assert problem["details"][0]["field"] == field
    assert says in problem["message"]


@pytest.fixture
def logged(api: Api) -> str:
    with api.db.write() as session:
        make_node(session, "n1", devices=4)
    job_id: str = api.data(api.post("/v1/jobs", document()), 201)["job_id"]
    lines = [block(1, "trains"), block(2, "trains too", rank=1), block(3, "rolls", rank=2), block(4, "on", rank=3)]
    LogWriter(api.app.extensions["trainyard"].plane.storage, job_id, 1).append(lines)
    return job_id


@pytest.fixture
def client(api: Api) -> Iterator[Client]:
    with serving(api) as served:
        yield Client(served.url, api.key)


def test_lines_of_a_role_are_read_searched_and_followed(client: Client, logged: str) -> None:
    assert [line["line"] for line in client.logs(logged, role="rollout")] == ["rolls", "on"]
    assert [line["line"] for line in client.search_logs(logged, text="o", role="trainer")] == ["trains too"]
    client.cancel(logged)
    assert [event.data["line"] for event in client.follow_logs(logged, role="rollout")] == ["rolls", "on"]


def test_a_role_that_the_job_does_not_have_is_refused(client: Client, logged: str) -> None:
    with pytest.raises(InvalidRequest, match="no role judge; known: trainer, rollout"):
        client.logs(logged, role="judge")
    with pytest.raises(InvalidRequest, match="omit rank or role"):
        client.logs(logged, role="trainer", rank=0)


def test_attempts_show_their_instances(api: Api, logged: str) -> None:
    with api.db.write() as session:
        job = session.get_one(Job, logged)
        job.status, job.queued_at = JobState.QUEUED, utc_now()
    planner.plan_once(api.db)

    (attempt,) = api.get(f"/v1/jobs/{logged}/attempts")["attempts"]

    shown = [(each["role"], each["index"], each["node"], each["first_rank"]) for each in attempt["instances"]]
    assert shown == [("trainer", 0, "n1", 0), ("rollout", 0, "n1", 2), ("rollout", 1, "n1", 3)]
