"""Run:ai's workloads whose pods differ, and copies of a training: submitted, placed and read back over HTTP."""

from datetime import timedelta
from typing import Any

import pytest

from app.domain.lifecycle.states import JobState
from app.models import Attempt, Device, Job
from app.models.base import utc_now
from app.services.scheduling import planner
from tests.builders.factories import make_node
from tests.integration.compat.test_named_secrets import VALUE, lay_down
from tests.integration.compat.test_runai import BASE, BODY, DISTRIBUTED, TRAININGS, said
from tests.systems.apps import Api

SPEC = {
    "command": "python",
    "args": "work.py",
    "numWorkers": 2,
    "compute": {"gpuDevicesRequest": 1},
    "environmentVariables": [{"name": "STAGE", "value": "test"}],
}
MASTER = {
    "command": "python",
    "args": "lead.py",
    "compute": {"gpuDevicesRequest": 0, "cpuCoreRequest": 1},
    "environmentVariables": [{"name": "PLACE", "secret": {"name": "db", "key": "url"}}],
}


@pytest.fixture
def node(api: Api) -> None:
    """With two GPUs and two CPU slots."""
    with api.db.write() as session:
        found = make_node(session, "n1", device_type="h100", memory_mb=80_000)
        found.devices += [Device(node="n1", index=index, type="cpu", memory_mb=0) for index in (1000, 1001)]


def plan(api: Api) -> list[str]:
    """Place the jobs that were submitted; the ids of those that have a place now."""
    with api.db.write() as session:
        for job in session.query(Job).filter(Job.status == JobState.PENDING):
            job.status, job.queued_at = JobState.QUEUED, utc_now()
    return [each.job_id for each in planner.plan_once(api.db)]


@pytest.mark.usefixtures("node")
@pytest.mark.both_databases
def test_master_and_workers_are_read_back_as_they_were_sent(api: Api) -> None:
    lay_down(api)

    made = said(api.post(DISTRIBUTED, {**BODY, "spec": SPEC, "masterSpec": MASTER}), 202)

    read = said(api.call("GET", f"{DISTRIBUTED}/{made['workloadId']}"))
    native = api.get(f"/v1/jobs/job-{made['workloadId']}")
    sent = {**SPEC, "environmentVariables": [{"name": "STAGE", "value": "test", "exclude": False}]}
    own = {**MASTER, "environmentVariables": [{**MASTER["environmentVariables"][0], "exclude": False}]}  # type: ignore[index]
    assert (read["spec"], read["masterSpec"]) == (sent, own)
    assert [(each["role"], each.get("count", 1), each["world"]) for each in native["tasks"]] == [
        ("master", 1, "job"),
        ("worker", 2, "job"),
    ]
    assert native["tasks"][0]["training_config"]["environment"] == {"PLACE": "***"}
    with api.db.read() as session:
        sealed = session.get_one(Job, f"job-{made['workloadId']}").sealed_secrets
    assert api.app.extensions["trainyard"].plane.box.open(sealed) == {
        "tasks.0.training_config.environment.PLACE": VALUE
    }


@pytest.mark.usefixtures("node")
def test_each_instance_is_a_pod(api: Api) -> None:
    lay_down(api)
    workload_id = said(api.post(DISTRIBUTED, {**BODY, "spec": SPEC, "masterSpec": MASTER}), 202)["workloadId"]
    before = said(api.call("GET", f"{BASE}/workloads/{workload_id}"))
    assert plan(api)
    with api.db.write() as session:
        attempt = session.get_one(Attempt, (f"job-{workload_id}", 1))
        first, *others = attempt.instances or []
        attempt.instances = [{**first, "exit_code": 0}, *others]

    row = said(api.call("GET", f"{BASE}/workloads/{workload_id}"))
    pods = said(api.call("GET", f"{BASE}/workloads/{workload_id}/pods"))["pods"]

    assert (before["type"], before["requestedPods"], before["runningPods"]) == ("Distributed", {"number": 3}, 0)
    assert (row["requestedPods"], row["runningPods"]) == ({"number": 3}, 3)
    assert [(pod["name"], pod["requestedResources"], pod["k8sPhase"]) for pod in pods] == [
        ("my-training-master-0", {}, "Succeeded"),
        ("my-training-worker-0", {"gpu": {"request": 1}}, "Pending"),
        ("my-training-worker-1", {"gpu": {"request": 1}}, "Pending"),
    ]
    assert measured(api, workload_id) == {"POD_COUNT": "3", "GPU_ALLOCATION": "2", "CPU_REQUEST_CORES": "1"}


def measured(api: Api, workload_id: str) -> dict[str, str]:
    end = utc_now() + timedelta(minutes=1)
    times = f"start={end - timedelta(minutes=9):%Y-%m-%dT%H:%M:%SZ}&end={end:%Y-%m-%dT%H:%M:%SZ}&numberOfSamples=1"
    kinds = "&".join(f"metricType={kind}" for kind in ("POD_COUNT", "GPU_ALLOCATION", "CPU_REQUEST_CORES"))
    found: Any = said(api.call("GET", f"{BASE}/workloads/{workload_id}/metrics?{times}&{kinds}"))["measurements"]
    return {each["type"]: each["values"][0]["value"] for each in found}


@pytest.mark.usefixtures("node")
def test_copies_are_placed_together_and_wait_until_all_fit(api: Api) -> None:
    spec = {"command": "python", "completions": 9, "compute": {"gpuDevicesRequest": 1}}

    fits = said(api.post(TRAININGS, {**BODY, "spec": {**spec, "parallelism": 2}}), 202)["workloadId"]
    more = api.post(TRAININGS, {**BODY, "name": "more", "spec": {**spec, "parallelism": 3}})
    waits = said(more, 202)["workloadId"]
    assert set(plan(api)) == {f"job-{fits}"}

    pods = said(api.call("GET", f"{BASE}/workloads/{fits}/pods"))["pods"]
    assert [pod["name"] for pod in pods] == ["my-training-copy-0", "my-training-copy-1"]
    assert more.headers["Warning"].startswith('299 - "spec.parallelism: needs copy 3 ? 1 GPU; all nodes together')
    row = said(api.call("GET", f"{BASE}/workloads/{waits}"))
    assert row["phaseMessage"].startswith("needs copy 3 × 1 GPU; the ready nodes together are too small"), row


@pytest.mark.parametrize(
    ("address", "changes", "field"),
    [
        (TRAININGS, {"spec": {"command": "x", "completions": 99, "parallelism": 65}}, "spec.parallelism"),
        (DISTRIBUTED, {"spec": {**SPEC, "numWorkers": 64}, "masterSpec": {"args": "x"}}, "spec.numWorkers"),
        (
            DISTRIBUTED,
            {"spec": SPEC, "masterSpec": {"compute": {"cpuCoreRequest": "x"}}},
            "masterSpec.compute.cpuCoreRequest",
        ),
    ],
)
def test_what_roles_can_not_be_is_refused_by_the_clients_field(
    api: Api, address: str, changes: Any, field: str
) -> None:
    problem = said(api.post(address, {**BODY, **changes}), 400)

    assert problem["complianceIssues"][0]["field"] == field
