"""mpirun in requests of Run:ai, ModelArts and OME: one job of the native API, shown as it was sent, or a refusal."""

from typing import Any

import pytest

from tests.builders.factories import make_node
from tests.integration.compat import test_modelarts as modelarts
from tests.integration.compat import test_ome as ome
from tests.integration.compat import test_runai as runai
from tests.systems.apps import Api

COMMAND = "mpirun -np 4 --allow-run-as-root -x MODE=fast python train.py"
# OME's documents have this runtime for MPI, but for the sizes.
PAIR: list[dict[str, Any]] = [
    {
        "name": "launcher",
        "template": {
            "spec": {
                "template": {
                    "spec": {
                        "containers": [
                            {
                                "name": "mpi-launcher",
                                "command": ["mpirun"],
                                "args": ["-np", "4", "--hostfile", "/etc/mpi/hostfile", "python", "train.py"],
                            }
                        ]
                    }
                }
            }
        },
    },
    {
        "name": "worker",
        "template": {
            "spec": {
                "template": {
                    "spec": {
                        "containers": [
                            {
                                "name": "mpi-worker",
                                "command": ["/usr/sbin/sshd", "-D"],
                                "resources": {"requests": {"memory": "1Gi"}},
                            }
                        ]
                    }
                }
            }
        },
    },
]


@pytest.fixture
def nodes(sqlite_api: Api) -> Api:
    """Two nodes with Open MPI."""
    with sqlite_api.db.write() as session:
        for name in ("n1", "n2"):
            make_node(session, name, capabilities=["mpi"])
    return sqlite_api


def launched(api: Api, identifier: str) -> tuple[Any, ...]:
    """(launcher, command, ranks of each node, nodes) of the native job."""
    job = api.get(f"/v1/jobs/job-{identifier}")
    framework = job["training_config"]["framework"]
    per_node = framework["distributed"]["config"]["num_proc_per_node"]
    nodes = job["resource_config"].get("node_count", 1)
    return framework["config"]["launcher"], framework["custom_command"], per_node, nodes


def test_launcher_of_run_ai_starts_the_ranks_of_its_workers(nodes: Api) -> None:
    spec = {"distributedFramework": "MPI", "numWorkers": 2, "slotsPerWorker": 2}
    body = {**runai.BODY, "spec": spec, "masterSpec": {"command": "sh", "args": f"-c '{COMMAND}'"}}

    answered = nodes.post(f"{runai.BASE}/workloads/distributed", body)

    made = runai.said(answered, 202)
    assert answered.headers.getlist("Warning") == []
    assert launched(nodes, made["workloadId"]) == ("mpi", ["sh", "-c", "env MODE=fast python train.py"], "2", 2)
    assert runai.said(nodes.call("GET", f"{runai.BASE}/workloads/distributed/{made['workloadId']}")) == made
    assert (made["spec"], made["masterSpec"]) == (body["spec"], body["masterSpec"])


def test_numbers_of_run_ai_that_differ_are_refused(nodes: Api) -> None:
    spec = {"distributedFramework": "MPI", "numWorkers": 2, "slotsPerWorker": 1, "command": COMMAND}

    refused = runai.said(nodes.post(f"{runai.BASE}/workloads/distributed", {**runai.BODY, "spec": spec}), 400)

    assert refused["complianceIssues"][0]["field"] == "spec.command"
    assert "mpirun is to start 4 processes, and 2 nodes with 1 processes each make 2" in refused["details"]


def test_training_of_run_ai_waits_for_a_node_with_open_mpi(sqlite_api: Api) -> None:
    with sqlite_api.db.write() as session:
        make_node(session)

    answered = sqlite_api.post(runai.TRAININGS, {**runai.BODY, "spec": {"command": COMMAND}})

    made = runai.said(answered, 202)
    (line,) = answered.headers.getlist("Warning")
    assert "spec.command" in line
    assert "mpi" in line
    assert launched(sqlite_api, made["workloadId"])[2:] == ("4", 1)


def test_ranks_of_mpirun_have_no_terminal(nodes: Api) -> None:
    body = {**runai.BODY, "spec": {"command": COMMAND, "tty": True}}

    refused = runai.said(nodes.post(runai.TRAININGS, body), 400)

    (issue,) = refused["complianceIssues"]
    assert issue["field"] == "spec.tty"
    assert "leave it out" in issue["details"][0]


def test_ranks_of_a_training_share_the_part_of_a_device(sqlite_api: Api) -> None:
    with sqlite_api.db.write() as session:
        make_node(session, device_type="a100", memory_mb=80_000, capabilities=["mpi"])
    half = {"gpuDevicesRequest": 1, "gpuRequestType": "portion", "gpuPortionRequest": 0.5}

    answered = sqlite_api.post(runai.TRAININGS, {**runai.BODY, "spec": {"command": COMMAND, "compute": half}})

    made = runai.said(answered, 202)
    assert answered.headers.getlist("Warning") == []
    assert launched(sqlite_api, made["workloadId"])[2:] == ("4", 1)


def test_command_of_modelarts_starts_the_ranks_of_its_nodes(nodes: Api) -> None:
    resource = {"resource": {"flavor_id": "trainyard.cpu.2", "node_count": 2}}
    algorithm = {"code_dir": "/team/src/", "command": COMMAND}

    made = modelarts.created(nodes, algorithm=algorithm, spec=resource)

    assert launched(nodes, made) == ("mpi", ["bash", "-c", "env MODE=fast python train.py"], "2", 2)
    read = modelarts.said(nodes.call("GET", f"{modelarts.JOBS}/{made}"))
    assert (read["algorithm"]["command"], read["spec"]["resource"]["node_count"]) == (COMMAND, 2)


@pytest.mark.parametrize(
    ("command", "why"),
    [
        ("mpirun -np 3 python train.py", "mpirun is to start 3 processes"),
        ("mpirun --hostfile hosts -np 4 python train.py", "there is no host file here"),
        ("mpirun -np 4 python train.py && echo done", "let mpirun be the only command"),
        ("pip install x && mpirun -np 4 python train.py", "let mpirun be the only command"),
    ],
)
def test_command_of_modelarts_that_the_nodes_do_not_fit_is_refused(nodes: Api, command: str, why: str) -> None:
    algorithm = {"code_dir": "/team/src/", "command": command}
    spec = {"resource": {"flavor_id": "trainyard.cpu.2", "node_count": 2}}

    answer = nodes.post(modelarts.JOBS, {**modelarts.BODY, "algorithm": algorithm, "spec": spec})

    refused = modelarts.said(answer, 400)
    assert refused["error_msg"].startswith("algorithm.command")
    assert why in refused["error_msg"]


def test_modelarts_needs_a_node_with_open_mpi(sqlite_api: Api) -> None:
    with sqlite_api.db.write() as session:
        make_node(session)

    answer = sqlite_api.post(modelarts.JOBS, {**modelarts.BODY, "algorithm": {"command": COMMAND}})

    refused = modelarts.said(answer, 400)
    assert refused["error_msg"].startswith("algorithm.command")
    assert "install Open MPI" in refused["error_msg"]


def test_launcher_and_workers_of_an_ome_runtime_are_the_nodes_of_mpirun(nodes: Api) -> None:
    body = ome.runtime("mpi-pair", mpi={"numProcPerNode": 2})
    body["spec"]["mlPolicy"]["numNodes"] = 2
    body["spec"]["template"] = {"spec": {"replicatedJobs": PAIR}}

    answered = nodes.post(ome.RUNTIMES, body)
    ome.said(answered, 201)
    made = ome.said(nodes.post(ome.JOBS, ome.manifest(runtimeRef={"name": "mpi-pair"}, trainer={})), 201)

    assert [line.split('"')[1].partition(":")[0] for line in answered.headers.getlist("Warning")] == [
        "spec.template.spec.replicatedJobs.1"
    ]
    assert launched(nodes, made["metadata"]["uid"]) == ("mpi", ["python", "train.py"], "2", 2)
    job = nodes.get(f"/v1/jobs/job-{made['metadata']['uid']}")
    assert job["resource_config"]["ram_min_mb"] == 1024


def test_programs_beside_the_trainer_of_an_ome_runtime_are_refused(nodes: Api) -> None:
    body = ome.runtime("pair")
    body["spec"]["template"] = {"spec": {"replicatedJobs": [PAIR[1], {**PAIR[0], "name": "initializer"}]}}

    refused = ome.said(nodes.post(ome.RUNTIMES, body), 400)

    assert refused["details"]["causes"][0]["field"] == "spec.template.spec.replicatedJobs.0"
    assert "a TrainingJob has one program" in refused["message"]
    assert "tasks" in refused["message"]
