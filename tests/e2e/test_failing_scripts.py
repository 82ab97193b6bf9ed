"""Failing scripts, in every vocabulary: retried as configured, reported as script errors, no fault of a node."""

import json
import urllib.request
from typing import Any

import pytest

from app.compat.cyxwiz import messages_pb2 as pb
from tests.systems.installations import counting_job
from tests.systems.system import System, wait_for

FAILING = ["sh", "-c", "echo it begins; exit 3"]
CLUSTER = "71f69d83-ba66-4822-adf5-55ce55efd210"


def script(words: list[str], *, retries: int = 0) -> dict[str, Any]:
    document = counting_job()
    framework = {"type": "CUSTOM", "custom_command": words, "custom_retry_on_error": retries > 0}
    document["training_config"] |= {"framework": framework, "max_retries": retries}
    return document


def natively(system: System) -> str:
    return system.submit(script(FAILING, retries=1))


def by_modelarts(system: System) -> str:
    annotations = {"fault-tolerance/job-retry-num": "1", "fault-tolerance/job-unconditional-retry": "true"}
    body = {
        "kind": "job",
        "metadata": {"name": "failing", "annotations": annotations},
        "algorithm": {"command": "echo it begins; exit 3"},
        "spec": {"resource": {"flavor_id": "trainyard.cpu.1", "node_count": 1}},
    }
    return f"job-{_made(system, '/v2/default/training-jobs', body, 201)['metadata']['id']}"


def by_runai(system: System) -> str:
    spec = {"command": "false", "image": "python:3.8", "backoffLimit": 1}
    body = {"name": "failing", "projectId": "default", "clusterId": CLUSTER, "spec": spec}
    return f"job-{_made(system, '/api/v1/workloads/trainings', body, 202)['workloadId']}"


def by_runai_on_two_nodes(system: System) -> str:
    spec = {"command": "false", "image": "x", "backoffLimit": 1, "numWorkers": 1, "distributedFramework": "PyTorch"}
    body = {"name": "both", "projectId": "default", "clusterId": CLUSTER, "spec": spec, "masterSpecSameAsWorker": True}
    return f"job-{_made(system, '/api/v1/workloads/distributed', body, 202)['workloadId']}"


def by_ome(system: System) -> str:
    """Whose jobs have no field that says whether a script is tried again."""
    body = {
        "apiVersion": "ome.io/v1beta1",
        "kind": "TrainingJob",
        "metadata": {"name": "failing"},
        "spec": {"runtimeRef": {"name": "pytorch-runtime"}, "trainer": {"command": FAILING}},
    }
    path = "/apis/ome.io/v1beta1/namespaces/default/trainingjobs"
    return f"job-{_made(system, path, body, 201)['metadata']['uid']}"


def by_cyxwiz(system: System) -> str:
    framework = {"type": "CUSTOM", "custom_command": FAILING, "custom_retry_on_error": True}
    training = {"framework": framework, "max_retries": 1, "base_model": {"model_id": "model"}}
    config = pb.JobConfig(
        job_type=pb.TRAINING,
        model_config=json.dumps({"training_config": training}),
        dataset_uri="data.jsonl",
        epochs=1,
        batch_size=1,
        required_device=pb.CPU,
    )
    request = urllib.request.Request(
        f"http://127.0.0.1:{system.port}/compat/cyxwiz/v1/jobs",
        data=config.SerializeToString(),
        headers={"Authorization": f"Bearer {system.key}", "Content-Type": "application/x-protobuf"},
    )
    with urllib.request.urlopen(request, timeout=30) as response:
        made = json.loads(response.read())
    return str(_shown(system, f"/compat/cyxwiz/v1/jobs/{made['job_id']}")["trainyard_job_id"])


def _made(system: System, path: str, body: dict[str, Any], wanted: int) -> dict[str, Any]:
    status, answer = system.call("POST", path, body)
    assert status == wanted, answer
    return dict(answer)


def _shown(system: System, path: str) -> dict[str, Any]:
    status, answer = system.call("GET", path)
    assert status == 200, answer
    return dict(answer)


def standing(system: System) -> dict[str, tuple[str, float]]:
    """Node → state and reputation."""
    return {node["name"]: (node["status"], node["reputation"]) for node in system.get("/v1/nodes")["nodes"]}


UNHARMED = ("ready", 1.0)


@pytest.mark.long
@pytest.mark.timeout(200)
def test_a_failing_script_is_no_nodes_fault_in_any_vocabulary(two_nodes: System) -> None:
    tried = {natively: 2, by_modelarts: 2, by_runai: 2, by_runai_on_two_nodes: 2, by_ome: 1, by_cyxwiz: 2}
    submitted = {submit.__name__: submit(two_nodes) for submit in tried}

    attempts: dict[str, list[str]] = {}
    for name, job_id in submitted.items():
        job = two_nodes.wait_for_status(job_id, "FAILED", seconds=90)
        assert job["error_type"] == "SCRIPT_ERROR", (name, two_nodes.story(job_id))
        attempts[name] = [each["cause"] for each in two_nodes.get(f"/v1/jobs/{job_id}/attempts")["attempts"]]
    two_nodes.wait_for_status(two_nodes.submit(script(["true"])), "COMPLETED")

    assert attempts == {submit.__name__: ["SCRIPT_ERROR"] * number for submit, number in tried.items()}
    assert standing(two_nodes) == {"n1": UNHARMED, "n2": UNHARMED}


@pytest.mark.long
@pytest.mark.timeout(300)
def test_a_cluster_on_which_half_of_the_scripts_fail_keeps_all_its_nodes(two_nodes: System) -> None:
    jobs = [two_nodes.submit(script(["false"], retries=1) if n % 2 else script(["true"])) for n in range(24)]
    ended = {"COMPLETED", "FAILED"}

    def all_ended() -> bool:
        return all(two_nodes.job(job_id)["status"] in ended for job_id in jobs)

    wait_for(all_ended, seconds=200, what="every job to end")

    said = [(two_nodes.job(job_id)["status"], two_nodes.job(job_id)["error_type"]) for job_id in jobs]
    assert said == [("COMPLETED", None), ("FAILED", "SCRIPT_ERROR")] * 12
    assert standing(two_nodes) == {"n1": UNHARMED, "n2": UNHARMED}
