"""Nodes over HTTP: drained, enabled, and the cluster at a glance."""

import pytest

from app.domain.job_state import JobState
from app.models import AuditEntry, Job, Node
from app.security.permissions import Role
from app.services import scheduling
from tests.apps import Api
from tests.factories import make_attempt, make_job, make_node


def audited(api: Api) -> list[tuple[str, str, object]]:
    with api.db.read() as session:
        entries = session.query(AuditEntry).where(AuditEntry.action.startswith("node.")).order_by(AuditEntry.id)
        return [(entry.action, entry.target, entry.data) for entry in entries]


def test_a_drained_node_gets_no_new_jobs_until_it_is_enabled(api: Api) -> None:
    with api.db.write() as session:
        make_node(session, "gpu-1")
        running = make_job(session, state=JobState.TRAINING)
        make_attempt(session, running, session.get_one(Node, "gpu-1"))
        waiting = make_job(session).id

    drained = api.data(api.post("/v1/nodes/gpu-1/drain"))

    assert (drained["name"], drained["status"], drained["requeued_jobs"]) == ("gpu-1", "draining", 0)
    assert scheduling.plan_once(api.db) == []
    enabled = api.data(api.post("/v1/nodes/gpu-1/enable"))
    assert enabled["status"] == "ready"
    assert [dispatched.job_id for dispatched in scheduling.plan_once(api.db)] == [waiting]
    assert audited(api) == [
        ("node.drain", "gpu-1", {"from": "ready", "to": "draining", "requeued_jobs": 0}),
        ("node.enable", "gpu-1", {"from": "draining", "to": "ready"}),
    ]


def test_draining_may_send_running_jobs_back(api: Api) -> None:
    with api.db.write() as session:
        node = make_node(session, "gpu-1")
        job = make_job(session, state=JobState.TRAINING)
        make_attempt(session, job, node)

    first = api.data(api.post("/v1/nodes/gpu-1/drain", {"requeue": True}))
    second = api.data(api.post("/v1/nodes/gpu-1/drain", {"requeue": True}))

    assert (first["requeued_jobs"], second["requeued_jobs"]) == (1, 0)
    assert api.dispatcher.nudged == [(job.id, "gpu-1")]
    with api.db.read() as session:
        assert session.get_one(Job, job.id).requested == "requeue"
    assert api.get(f"/v1/jobs/{job.id}")["requested"] is None  # a wish of ours, not of its owner


def test_a_drain_that_is_asked_for_twice_with_one_key_answers_once(api: Api) -> None:
    with api.db.write() as session:
        make_node(session, "gpu-1")

    first = api.post("/v1/nodes/gpu-1/drain", {}, headers={"Idempotency-Key": "k"})
    api.data(api.post("/v1/nodes/gpu-1/enable"))
    again = api.post("/v1/nodes/gpu-1/drain", {}, headers={"Idempotency-Key": "k"})

    assert api.data(again) == api.data(first)
    assert api.get("/v1/nodes/gpu-1")["status"] == "ready"


@pytest.mark.parametrize("state", ["draining", "drained"])
def test_draining_again_changes_nothing(api: Api, state: str) -> None:
    with api.db.write() as session:
        make_node(session, "gpu-1", state=state)

    assert api.data(api.post("/v1/nodes/gpu-1/drain"))["status"] == state
    assert audited(api) == []


def test_enabling_a_ready_node_changes_nothing(api: Api) -> None:
    with api.db.write() as session:
        make_node(session, "gpu-1")

    assert api.data(api.post("/v1/nodes/gpu-1/enable"))["status"] == "ready"
    assert audited(api) == []


def test_a_lost_node_is_not_enabled_but_may_be_drained(api: Api) -> None:
    with api.db.write() as session:
        make_node(session, "gpu-1", state="lost")

    error = api.problem(api.post("/v1/nodes/gpu-1/enable"), 409)

    assert error["code"] == "INVALID_STATE"
    assert "ready again by itself once its worker reports" in error["message"]
    assert api.data(api.post("/v1/nodes/gpu-1/drain"))["status"] == "draining"


@pytest.mark.parametrize("verb", ["drain", "enable"])
def test_an_unknown_node_is_missing_and_the_known_are_named(sqlite_api: Api, verb: str) -> None:
    with sqlite_api.db.write() as session:
        make_node(session, "gpu-1")

    error = sqlite_api.problem(sqlite_api.post(f"/v1/nodes/gpu-2/{verb}"), 404)

    assert error["message"] == "no node 'gpu-2'; known: gpu-1"


@pytest.mark.parametrize(
    ("verb", "body", "field"),
    [("drain", {"requeue": 1}, "requeue"), ("drain", {"requeued": True}, "requeued"), ("enable", {"a": 1}, "a")],
)
def test_a_bad_body_names_the_field(sqlite_api: Api, verb: str, body: dict[str, object], field: str) -> None:
    with sqlite_api.db.write() as session:
        make_node(session, "gpu-1")

    error = sqlite_api.problem(sqlite_api.post(f"/v1/nodes/gpu-1/{verb}", body), 422)

    assert [detail["field"] for detail in error["details"]] == [field]
    assert sqlite_api.get("/v1/nodes/gpu-1")["status"] == "ready"


@pytest.mark.parametrize("role", [Role.VIEWER, Role.USER, Role.ADMIN])
def test_only_cluster_administrators_operate_nodes(sqlite_api: Api, role: Role) -> None:
    key = sqlite_api.make_key(role)
    with sqlite_api.db.write() as session:
        make_node(session, "gpu-1")

    for verb in ("drain", "enable"):
        sqlite_api.problem(sqlite_api.post(f"/v1/nodes/gpu-1/{verb}", key=key), 403)
    assert sqlite_api.get("/v1/nodes/gpu-1", key=key)["status"] == "ready"


def test_the_cluster_is_seen_at_a_glance(api: Api) -> None:
    with api.db.write() as session:
        job = make_job(session, state=JobState.TRAINING)
        make_attempt(session, job, make_node(session, "a", devices=3, device_type="h200"), device_indices=(0, 1))
        make_node(session, "b", devices=2, state="lost")
        make_node(session, "c", devices=1, device_type="h200", state="drained")
        make_job(session, project="other")
    scheduling.hold_planner(api.db, "box:boot:12:34")
    scheduling.beat(api.db, "coordinator@box-1", "box:boot:12:34")

    seen = api.get("/v1/cluster")

    assert seen["nodes"] == {"ready": 1, "draining": 0, "drained": 1, "lost": 1}
    assert seen["devices"] == [
        {"type": "cpu", "total": 2, "in_use": 0, "free": 0},
        {"type": "h200", "total": 4, "in_use": 2, "free": 1},
    ]
    assert {state: count for state, count in seen["jobs"].items() if count} == {"TRAINING": 1, "QUEUED": 1}
    assert set(seen["jobs"]) == set(JobState)
    assert [(queue["name"], queue["waiting"], queue["running"]) for queue in seen["queues"]] == [("default", 1, 1)]
    assert (seen["planner"]["host"], seen["planner"]["alive"]) == ("box", True)
    assert [(beat["name"], beat["alive"]) for beat in seen["coordinators"]] == [("coordinator@box-1", True)]
    assert (seen["parts"]["database"], seen["parts"]["coordinator"]) == ("ok", "ok")
    assert "TRAINYARD_BROKER_URL" in seen["parts"]["broker"]


def test_a_project_sees_its_own_jobs_in_the_cluster(api: Api) -> None:
    with api.db.write() as session:
        make_job(session)
        make_job(session, project="other")

    seen = api.get("/v1/cluster", key=api.make_key(Role.VIEWER, "other"))

    assert (sum(seen["jobs"].values()), seen["queues"][0]["waiting"]) == (1, 1)
    assert (seen["planner"], seen["coordinators"]) == (None, [])
