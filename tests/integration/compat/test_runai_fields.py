"""What of a Run:ai training has no effect is named, and what is no training is refused."""

import re
from typing import Any

import pytest

from app.compat.ids import job_id_of
from app.domain.spec.locations.paths import ReadingRules
from app.security.permissions import Role
from app.services.scheduling import planner
from tests.builders.admitting import admit
from tests.builders.factories import make_node
from tests.integration.compat.runai_seed import TRAINING, WITHOUT_EFFECT
from tests.integration.compat.test_runai import BASE, BODY, TRAININGS, said
from tests.systems.apps import Api

FITTING: dict[str, Any] = {  # the devices of a node for the example
    "device_type": "a100",
    "memory_mb": 80_000,
    "labels": ["my-node-type", "my-node-pool-b"],
    "capabilities": ["mounts"],
}


@pytest.mark.parametrize("nodes", [0, 1])
def test_example_of_the_documentation_is_taken_as_it_is(api: Api, nodes: int) -> None:
    with api.db.write() as session:
        for _ in range(nodes):
            make_node(session, "gpu-1", **FITTING)
    key = api.make_key(Role.USER, "default", name="test@lab.com")

    answered = api.post(TRAININGS, TRAINING, key=key)
    answer = said(answered, 202)
    returned = said(api.call("GET", f"{TRAININGS}/{answer['workloadId']}", key=key))

    assert returned == answer
    assert returned["spec"] == TRAINING["spec"]
    assert returned["requestedName"] == TRAINING["name"]
    assert re.fullmatch(r"my-workload-name-[a-z0-9]{8}", returned["name"])
    assert (returned["projectId"], returned["departmentId"], returned["createdBy"]) == (1, 1, "test@lab.com")
    assert any(line.startswith('299 - "spec.image: the job runs') for line in answered.headers.getlist("Warning"))
    events = said(api.call("GET", f"{BASE}/workloads/{answer['workloadId']}/events", key=key))["events"]
    warning = next(event for event in events if event["type"] == "Warning")
    assert warning["reason"] == "NOT_ACTED_ON"
    lines = warning["message"].removeprefix("accepted but ignored: ").split("; ")
    assert {line.partition(": ")[0] for line in lines} == WITHOUT_EFFECT


@pytest.mark.parametrize(
    ("device", "labels", "field", "reason"),
    [
        ("a100", ["my-node-pool-b"], "spec.nodeType", "is not labelled my-node-type (spec.nodeType)"),
        ("cpu", ["my-node-type", "my-node-pool-a"], "spec.compute.gpuPortionRequest", "has no GPU"),
    ],
)
def test_example_of_the_documentation_waits_for_a_node_that_has_what_it_asks_for(
    api: Api, device: str, labels: list[str], field: str, reason: str
) -> None:
    with api.db.write() as session:
        make_node(session, device_type=device, memory_mb=80_000, labels=labels, capabilities=["mounts"])

    answered = api.post(TRAININGS, TRAINING)
    job_id = job_id_of(said(answered, 202)["workloadId"])
    warnings = [line for line in answered.headers.getlist("Warning") if "; the job waits until a" in line]
    assert admit(api.db, job_id, ReadingRules(roots=()))
    planner.plan_once(api.db)
    waiting = said(api.call("GET", f"{BASE}/workloads"))["workloads"][0]
    with api.db.write() as session:
        make_node(session, "late", **FITTING)
    planner.plan_once(api.db)

    assert len(warnings) == 1
    assert warnings[0].startswith(f'299 - "{field}: no ')
    assert waiting["phase"] == "Pending"
    assert reason in waiting["phaseMessage"]
    assert [(each["reason"], each["message"]) for each in waiting["conditions"]] == [
        ("Unschedulable", waiting["phaseMessage"])
    ]
    assert api.get(f"/v1/jobs/{job_id}")["node_names"] == ["late"]


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"name": ""}, "name"),
        ({"name": "a/b"}, "name"),
        ({"projectId": None}, "projectId"),
        ({"projectId": True}, "projectId"),
        ({"spec": {}}, "spec.command"),
        ({"spec": {"command": "true", "colour": "blue"}}, "spec.colour"),
        ({"spec": {"command": "true", "backoffLimit": -1}}, "spec.backoffLimit"),
        ({"spec": {"command": "true", "completions": 0}}, "spec.completions"),
        ({"spec": {"command": "true", "priorityClass": "urgent"}}, "spec.priorityClass"),
        ({"spec": {"command": "true", "compute": {"gpuPortionRequest": 2}}}, "spec.compute.gpuPortionRequest"),
        ({"spec": {"command": "true", "compute": {"cpuMemoryRequest": "lots"}}}, "spec.compute.cpuMemoryRequest"),
        ({"spec": {"command": "true", "nodePools": ["a|b"] * 9}}, "spec.nodePools"),
        (
            {"spec": {"command": "true", "environmentVariables": [{"name": "A B", "value": "x"}]}},
            "spec.environmentVariables",
        ),
        ({"spec": {"command": "true", "probes": {"bad": 1}}}, "spec.probes.bad"),
        (
            {"spec": {"command": "true", "probes": {"readiness": {"periodSeconds": 0}}}},
            "spec.probes.readiness.periodSeconds",
        ),
        ({"spec": {"command": "true", "podAffinity": {"type": "Banana", "key": "a"}}}, "spec.podAffinity.type"),
        ({"spec": {"command": "true", "podAffinity": {"type": "Required"}}}, "spec.podAffinity"),
        ({"spec": {"command": "true", "tolerations": [{"operator": "Z"}]}}, "spec.tolerations.0.operator"),
        ({"spec": {"command": "true", "security": {"foo": 1}}}, "spec.security.foo"),
        ({"spec": {"command": "true", "security": {"runAsUid": "root"}}}, "spec.security.runAsUid"),
        ({"spec": {"command": "true", "security": {"runAsUid": 0}}}, "spec.security.runAsUid"),
        ({"spec": {"command": "true", "security": {"runAsUid": 2**31}}}, "spec.security.runAsUid"),
        (
            {"spec": {"command": "true", "security": {"allowPrivilegeEscalation": True}}},
            "spec.security.allowPrivilegeEscalation",
        ),
        ({"spec": {"command": "true", "security": {"capabilities": ["FLY"]}}}, "spec.security.capabilities.0"),
        ({"spec": {"command": "true", "security": {"supplementalGroups": "a"}}}, "spec.security.supplementalGroups"),
        ({"spec": {"command": "true", "ports": [{"container": 70_000}]}}, "spec.ports.0.container"),
        (
            {"spec": {"command": "true", "exposedUrls": [{"container": 80, "authorizedUsers": "ada"}]}},
            "spec.exposedUrls.0.authorizedUsers",
        ),
        ({"spec": {"command": "true", "imagePullSecrets": ["a"]}}, "spec.imagePullSecrets.0"),
        (
            {"spec": {"command": "true", "nodeAffinityRequired": {"nodeSelectorTerms": [{"matchExpressions": [{}]}]}}},
            "spec.nodeAffinityRequired.nodeSelectorTerms.0.matchExpressions.0",
        ),
        (
            {"spec": {"command": "true", "compute": {"extendedResources": [{"resource": "a/b", "quantity": -1}]}}},
            "spec.compute.extendedResources.0.quantity",
        ),
        (
            {"spec": {"command": "true", "storage": {"secretVolume": [{"defaultMode": "rw"}]}}},
            "spec.storage.secretVolume.0.defaultMode",
        ),
        (
            {"spec": {"command": "true", "storage": {"pvc": [{"claimInfo": {"size": "big"}}]}}},
            "spec.storage.pvc.0.claimInfo.size",
        ),
    ],
)
def test_errors_name_the_field_as_the_client_knows_it(api: Api, changes: Any, field: str) -> None:
    with api.db.write() as session:
        make_node(session)

    answer = said(api.post(TRAININGS, {**BODY, **changes}), 400)

    assert answer["code"] == 400
    issue = answer["complianceIssues"][0]
    assert issue["field"].startswith(field), answer
    assert answer["message"].startswith(f"{issue['field']}: {issue['details'][0]}"), answer
    assert api.get("/v1/jobs")["total_count"] == 0
