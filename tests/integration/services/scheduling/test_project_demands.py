"""What projects demand of the nodes of their jobs, on real databases: at submission, in the planner, and in between."""

import pytest

from app.database.engine import Database
from app.domain.lifecycle.states import JobState
from app.domain.scheduling.placement import Placement
from app.domain.scheduling.resources import Device
from app.models import Node, Project
from app.services.scheduling import placement, planner
from tests.builders import factories
from tests.builders.factories import make_document
from tests.builders.walks import ON_TWO_NODES, job_of, make_job, make_node
from tests.systems.apps import Api

pytestmark = pytest.mark.both_databases

FULL = "sandbox:full"
PROJECT = "/v1/projects/default"


def demand(db: Database, *words: str) -> None:
    with db.write() as session:
        factories.make_project(session, "default").quota = {"required_capabilities": [*words]}


def offer(db: Database, name: str, *words: str) -> None:
    with db.write() as session:
        session.get_one(Node, name).capabilities = [*words]


def test_job_waits_for_a_node_that_has_what_its_project_demands(database: Database) -> None:
    make_node(database, "open", devices=4)
    job_id = make_job(database, state=JobState.QUEUED)
    demand(database, FULL)

    assert planner.plan_once(database) == []
    said = f"lacks the capabilities {FULL} (its project demands {FULL})"
    assert said in job_of(database, job_id).pending_reason
    offer(database, "open", FULL, "sandbox:namespaces")
    assert [each.job_id for each in planner.plan_once(database)] == [job_id]


def test_job_of_another_project_goes_anywhere(database: Database) -> None:
    make_node(database, "open", devices=4)
    demand(database, FULL)
    with database.write() as session:
        session.add(Project(name="other"))
    job_id = make_job(database, state=JobState.QUEUED, project="other")

    assert [each.job_id for each in planner.plan_once(database)] == [job_id]


def test_demand_that_comes_after_the_plan_stops_the_start(database: Database) -> None:
    make_node(database, "open", devices=1)
    job_id = make_job(database, state=JobState.QUEUED)
    planned = [Placement(job_id=job_id, node="open", devices=(Device(index=0, type="cpu"),))]
    demand(database, FULL)

    assert placement.place(database, planned, "planner") == []
    demand(database)
    assert [each.job_id for each in placement.place(database, planned, "planner")] == [job_id]


def test_each_instance_of_a_role_needs_it(database: Database) -> None:
    tasks = [{"role": name, "count": 1, "resource_config": {"gpu_count": 1}} for name in ("a", "b")]
    make_node(database, "open", devices=4)
    demand(database, FULL)
    job_id = make_job(
        database,
        state=JobState.QUEUED,
        document={**make_document(resource_config={"device_type": "cpu"}), "tasks": tasks},
    )

    assert planner.plan_once(database) == []
    assert FULL in job_of(database, job_id).pending_reason
    offer(database, "open", FULL)
    assert [each.job_id for each in planner.plan_once(database)] == [job_id]


def test_explanation_of_a_node_counts_the_demand(api: Api) -> None:
    make_node(api.db, "open", devices=4)
    job_id = make_job(api.db, state=JobState.QUEUED)
    demand(api.db, FULL)

    (node,) = api.get(f"/v1/jobs/{job_id}/placement")["nodes"]

    (finding,) = [each for each in node["filters"] if not each["passed"]]
    assert (finding["filter"], node["could_hold"]) == ("required_capabilities", False)
    assert f"(its project demands {FULL})" in finding["reason"]


def test_submission_that_no_node_may_hold_is_refused_by_the_name_of_the_project(api: Api) -> None:
    make_node(api.db, "open", devices=4)
    changed = api.data(api.call("PATCH", PROJECT, json={"required_capabilities": [FULL]}))
    document = make_document(resource_config={"gpu_count": 1, "device_type": "cpu"})

    problem = api.problem(api.post("/v1/jobs", document), 400)

    assert changed["required_capabilities"] == [FULL]
    assert problem["details"][0]["field"] == "scheduling_config.required_capabilities"
    assert f"the project default demands {FULL}" in problem["message"]
    waits = {**document, "scheduling_config": {"wait_for_node": True}}
    assert any(FULL in line for line in api.data(api.post("/v1/jobs", waits), 201)["warnings"])
    offer(api.db, "open", FULL)
    api.data(api.post("/v1/jobs", document), 201)


def test_demands_are_changed_alone_and_recorded(api: Api) -> None:
    made = api.data(api.post("/v1/projects", {"name": "team", "required_capabilities": [FULL, "limits", FULL]}), 201)
    limited = api.data(api.call("PATCH", "/v1/projects/team", json={"quota": {"max_running_jobs": 2}}))
    freed = api.data(api.call("PATCH", "/v1/projects/team", json={"required_capabilities": []}))
    refused = api.problem(api.call("PATCH", "/v1/projects/team", json={"required_capabilities": ["a b"]}), 422)
    (entry, *_) = api.get("/v1/audit?action=project.patch")["entries"]

    assert made["required_capabilities"] == limited["required_capabilities"] == ["limits", FULL]
    assert (freed["required_capabilities"], freed["quota"]["max_running_jobs"]) == ([], 2)
    assert refused["details"][0]["field"] == "required_capabilities.0"
    assert entry["data"]["changes"] == {"required_capabilities": []}


def test_ranks_on_several_nodes_have_no_network_of_their_own(api: Api) -> None:
    for name in ("n1", "n2"):
        make_node(api.db, name, devices=4)
        offer(api.db, name, "sandbox:network")
    demand(api.db, "sandbox:network")

    problem = api.problem(api.post("/v1/jobs", ON_TWO_NODES), 400)
    one = {**ON_TWO_NODES, "resource_config": {**ON_TWO_NODES["resource_config"], "node_count": 1}}

    assert (problem["details"][0]["field"], "ask for one node" in problem["message"]) == (
        "resource_config.node_count",
        True,
    )
    api.data(api.post("/v1/jobs", one), 201)
