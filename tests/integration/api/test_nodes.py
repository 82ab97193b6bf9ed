"""Nodes over HTTP: drained, enabled, and the cluster at a glance."""

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from app.domain.lifecycle.states import JobState
from app.domain.scheduling.resources import Device
from app.models import AuditEntry, Job, Node, StuckDevice
from app.security.permissions import Role
from app.services.access.api_keys import ADMINISTRATOR
from app.services.nodes import registry, stuck_devices
from app.services.nodes.registry import NodeReport
from app.services.scheduling import planner
from tests.builders.factories import make_attempt, make_document, make_job, make_node
from tests.systems.apps import Api


def report(labels: tuple[str, ...] = ()) -> NodeReport:
    return NodeReport(
        name="gpu-1",
        devices=(Device(index=0, type="cpu"),),
        cpu_cores=1,
        ram_mb=1,
        storage_mb=1,
        sandbox="process",
        version="",
        boot_id="b",
        labels=labels,
    )


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
    assert planner.plan_once(api.db) == []
    enabled = api.data(api.post("/v1/nodes/gpu-1/enable"))
    assert enabled["status"] == "ready"
    assert [dispatched.job_id for dispatched in planner.plan_once(api.db)] == [waiting]
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
    assert api.get(f"/v1/jobs/{job.id}")["requested"] is None  # requested by the platform, not by its owner


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


def test_links_of_a_node_are_those_it_reported_last_and_a_job_gets_linked_devices(api: Api) -> None:
    def links_after_report(*groups: int | None) -> list[int | None]:
        devices = tuple(Device(index=index, type="h200", link_group=group) for index, group in enumerate(groups))
        registry.register(api.db, replace(report(), devices=devices))
        return [device["link_group"] for device in api.get("/v1/nodes/gpu-1")["devices"]]

    assert links_after_report(0, 0, None, None) == [0, 0, None, None]
    assert links_after_report(None, 0, None, 0) == [None, 0, None, 0]
    with api.db.write() as session:
        two = make_document(resource_config={"gpu_count": 2, "device_type": "cuda"})
        job_id = make_job(session, document=two).id
    fit = api.get(f"/v1/nodes/gpu-1/why/{job_id}")
    assert [each["points"] for each in fit["scores"] if each["name"] == "linked"] == [100.0]

    planner.plan_once(api.db)

    assert [device["in_use"] for device in api.get("/v1/nodes/gpu-1")["devices"]] == [False, True, False, True]


def test_devices_held_by_what_can_not_be_ended_are_shown_and_put_back_by_hand(api: Api) -> None:
    with api.db.write() as session:
        make_node(session, "gpu-1", device_type="h200", devices=3)
        at = datetime(2026, 11, 1, 12, tzinfo=UTC)
        for number in (1, 2):  # of two attempts, one after the other
            session.add(StuckDevice(node="gpu-1", device_index=1, job_id="j", attempt=number, since=at, seen_at=at))

    shown = [device["out_of_service_reason"] for device in api.get("/v1/nodes/gpu-1")["devices"]]
    counted = {"type": "h200", "total": 3, "in_use": 0, "share_in_use": 0.0, "free": 2, "out_of_service": 1}
    assert (shown[0], shown[2]) == ("", "")
    assert shown[1].startswith("held since 2026-11-01T12:00:00+00:00 by an unkillable process")
    assert api.get("/v1/cluster")["devices"] == [counted]

    api.data(api.post("/v1/nodes/gpu-1/enable"))

    assert api.get("/v1/cluster")["devices"] == [counted], "not by the verb that follows on each drain"
    assert stuck_devices.put_back_by_hand(api.db, ADMINISTRATOR, "gpu-1") == 1
    assert api.get("/v1/cluster")["devices"] == [counted | {"free": 3, "out_of_service": 0}]
    assert audited(api) == [("node.put_back", "gpu-1", {"devices": [1]})]
    assert stuck_devices.put_back_by_hand(api.db, ADMINISTRATOR, "gpu-1") == 0


def labelled(api: Api, *labels: str) -> Any:
    return api.call("PATCH", "/v1/nodes/gpu-1", json={"labels": labels})


def test_labels_of_an_administrator_count_like_those_of_the_file_and_outlive_a_restart(api: Api) -> None:
    registry.register(api.db, report(labels=("rack-7",)))
    with api.db.write() as session:
        job_id = make_job(
            session, document=make_document(resource_config={"required_node_labels": ["rack-7", "fast"]})
        ).id
    assert planner.plan_once(api.db) == []

    shown = api.data(labelled(api, "rack-7", "fast"))
    registry.register(api.db, report(labels=("rack-7", "new")))

    assert (shown["labels"], shown["admin_labels"]) == (["rack-7", "fast"], ["fast"])
    assert api.get("/v1/nodes/gpu-1")["labels"] == ["rack-7", "new", "fast"]
    assert [dispatched.job_id for dispatched in planner.plan_once(api.db)] == [job_id]
    assert audited(api) == [("node.label", "gpu-1", {"from": [], "to": ["fast"]})]


def test_labels_that_are_left_out_are_gone_but_for_those_of_the_file(api: Api) -> None:
    registry.register(api.db, report(labels=("rack-7",)))
    api.data(labelled(api, "fast", "rack-7"))

    error = api.problem(labelled(api, "fast"), 409)

    assert error["message"].startswith("rack-7 is set in the node.toml of gpu-1 and can't be removed here")
    assert api.data(labelled(api, "rack-7"))["labels"] == ["rack-7"]
    assert api.data(labelled(api, "rack-7"))["admin_labels"] == []
    assert [data for _, _, data in audited(api)] == [{"from": [], "to": ["fast"]}, {"from": ["fast"], "to": []}]


def test_a_label_keeps_its_giver_when_the_file_has_it_too(api: Api) -> None:
    registry.register(api.db, report())
    api.data(labelled(api, "fast"))
    registry.register(api.db, report(labels=("fast",)))
    api.data(labelled(api, "fast", "big"))

    registry.register(api.db, report())

    assert api.get("/v1/nodes/gpu-1")["labels"] == ["fast", "big"]


@pytest.mark.parametrize("body", [{}, {"labels": "fast"}, {"labels": ["zone=eu"]}, {"name": "x", "labels": []}])
def test_what_is_no_list_of_labels_is_refused_by_name(sqlite_api: Api, body: dict[str, Any]) -> None:
    registry.register(sqlite_api.db, report())

    answer = sqlite_api.call("PATCH", "/v1/nodes/gpu-1", json=body)

    assert answer.status_code == 422
    assert sqlite_api.get("/v1/nodes/gpu-1")["labels"] == []


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


@pytest.mark.both_databases
def test_the_cluster_is_seen_at_a_glance(api: Api) -> None:
    with api.db.write() as session:
        job = make_job(session, state=JobState.TRAINING)
        make_attempt(session, job, make_node(session, "a", devices=3, device_type="h200"), device_indices=(0, 1))
        make_node(session, "b", devices=2, state="lost")
        make_node(session, "c", devices=1, device_type="h200", state="drained")
        make_job(session, project="other")
    planner.renew_leadership(api.db, "box:boot:12:34")
    planner.beat(api.db, "coordinator@box-1", "box:boot:12:34")

    seen = api.get("/v1/cluster")

    assert seen["nodes"] == {"ready": 1, "draining": 0, "drained": 1, "quarantined": 0, "lost": 1}
    assert seen["devices"] == [
        {"type": "cpu", "total": 2, "in_use": 0, "share_in_use": 0.0, "free": 0, "out_of_service": 0},
        {"type": "h200", "total": 4, "in_use": 2, "share_in_use": 2.0, "free": 1, "out_of_service": 0},
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
