"""One training in several vocabularies at once, by clients that know only their own."""

import hashlib
import json
import shutil
import urllib.request
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

import pytest
from google.protobuf.message import Message

from app.compat.cyxwiz import messages_pb2 as pb
from tests.lazy_imports import lazily_imported
from tests.systems.forked_agents import ForkedAgents
from tests.systems.system import System, wait_for

if TYPE_CHECKING:
    import runai
    from runai.runai_client import RunaiClient
else:
    runai = lazily_imported("runai")

M = TypeVar("M", bound=Message)
R = TypeVar("R")
CYXWIZ = "/compat/cyxwiz/v1"
BINARY = "application/x-protobuf"
CLUSTER = "71f69d83-ba66-4822-adf5-55ce55efd210"


def cyxwiz(system: System, method: str, path: str, answer: type[M], message: Message | None = None) -> M:
    """What a client does that has compiled our messages."""
    url, sent = f"http://127.0.0.1:{system.port}{CYXWIZ}{path}", message.SerializeToString() if message else None
    headers = {"Authorization": f"Bearer {system.key}", "Content-Type": BINARY, "Accept": BINARY}
    request = urllib.request.Request(url, method=method, data=sent, headers=headers)
    with urllib.request.urlopen(request, timeout=30) as response:
        return answer.FromString(response.read())


@pytest.mark.long
@pytest.mark.timeout(300)
def test_job_of_a_cyxwiz_client_is_paused_natively_and_goes_on_to_its_report(
    make_system: Callable[..., System], forked_agents: ForkedAgents, assets: dict[str, str]
) -> None:
    system = make_system(TRAINYARD_STORAGE_ROOTS=str(Path(assets["model"]).parent)).start("n1")
    forked_agents.serve_system(system)
    parts = {
        "training_config": {"base_model": {"model_id": assets["model"]}, "hyperparameters": {"max_steps": "120"}},
        "data_config": {"max_seq_length": 64},
        "output_config": {"checkpoint": {"save_steps": 40}},
    }
    config = pb.JobConfig(
        job_id="docstrings",
        job_type=pb.TRAINING,
        model_config=json.dumps(parts),
        dataset_uri=assets["train"],
        epochs=1,
        batch_size=4,
        learning_rate=1e-3,
        required_device=pb.CPU,
        priority=7,
        timeout_seconds=600,
    )

    made = cyxwiz(system, "POST", "/jobs", pb.SubmitJobResponse, config)
    job_id = cyxwiz(system, "GET", f"/jobs/{made.job_id}", pb.JobStatus).trainyard_job_id

    def measured() -> pb.ProgressUpdate | None:
        found = cyxwiz(system, "GET", f"/jobs/{made.job_id}/progress", pb.ProgressUpdate)
        return found if found.memory_used_mb else None

    system.wait_for_step(job_id, 36, seconds=240)
    running = wait_for(measured, seconds=30, what="its memory is measured")
    system.call("POST", f"/v1/jobs/{job_id}/pause")
    system.wait_for_status(job_id, "PAUSED")
    paused = cyxwiz(system, "GET", f"/jobs/{made.job_id}", pb.JobStatus)
    cyxwiz(system, "POST", f"/jobs/{made.job_id}/resume", pb.JobStatus, pb.ResumeRequest())
    system.wait_for_status(job_id, "COMPLETED", seconds=200)
    ended = cyxwiz(system, "GET", f"/jobs/{made.job_id}", pb.JobStatus)

    assert 0.25 < running.progress < 1
    assert running.metrics["loss"] > 0
    assert running.memory_used_mb > 100
    assert (paused.status, paused.config.priority) == (pb.JobStatus.PAUSED, 7)
    assert ended.status == pb.JobStatus.COMPLETED
    report = cyxwiz(system, "GET", f"/jobs/{made.job_id}/report", pb.CompletionReport)
    assert report.status == pb.SUCCESS
    assert report.compute_time_ms > 0
    files = system.get(f"/v1/jobs/{job_id}/report")["weight_files"]
    weights = b"".join(system.download(f"/v1/jobs/{job_id}/artifacts/{name}") for name in files)
    assert report.model_hash == hashlib.sha256(weights).hexdigest()


def _typed(model: type[R], document: Any) -> R:
    """As the client's own class, which refuses what is no such thing."""
    found: R | None = cast("Any", model).from_dict(document)
    assert found is not None
    return found


def _until(look: Callable[[], str], wanted: str, *, seconds: float = 60) -> None:
    wait_for(lambda: True if look() == wanted else None, seconds=seconds, what=f"the phase {wanted}")


def runai_of(system: System) -> "RunaiClient":
    """The client with a pair of its own, at a running system."""
    from runai.runai_client import RunaiClient  # noqa: PLC0415  see `runai`

    pair = system.call("POST", "/v1/keys", {"role": "user", "project": "default", "name": "ada"})[1]["data"]
    return RunaiClient(
        runai.ApiClient(
            runai.Configuration(
                client_id=pair["access_key"],
                client_secret=pair["secret_key"],
                retry_enabled=False,
                runai_base_url=f"http://127.0.0.1:{system.port}",
            )
        )
    )


@pytest.mark.long
@pytest.mark.timeout(200)
def test_runai_client_leads_a_training_through_its_life(two_nodes: System) -> None:
    system = two_nodes
    code = system.inputs / "run-ai"
    code.mkdir()
    (code / "train.py").write_text(
        "import sys, time\n"
        "for step in range(int(sys.argv[1])):\n"
        "    print('step', step, sys.stdout.isatty(), flush=True)\n"
        "    time.sleep(0.2)\n"
    )
    client = runai_of(system).workloads
    trainings, workloads = client.trainings, client.workloads

    def submitted(name: str, steps: int) -> runai.Training1:
        spec = runai.TrainingSpecSpec(
            command="python", args=f"train.py {steps}", workingDir=str(code), tty=True, category="Train"
        )
        wanted = runai.TrainingCreationRequest(name=name, projectId="default", clusterId=CLUSTER, spec=spec)
        made = trainings.create_training1(wanted)
        assert made.headers["Warning"] == '299 - "spec.category: every workload is in the category Train"'
        return _typed(runai.Training1, made.data)

    def phase(workload_id: str) -> str:
        found = _typed(runai.Training1, trainings.get_training(workload_id).data).actual_phase
        return str(found and found.value)

    endless = submitted("endless", 10_000).workload_id
    _until(lambda: phase(endless), "Running")
    row = _typed(runai.Workload, workloads.get_workload(endless).data)
    trainings.suspend_training(endless)
    _until(lambda: phase(endless), "Stopped")
    trainings.resume_training(endless)
    _until(lambda: phase(endless), "Running")
    made = submitted("short", 3)
    short = made.workload_id
    _until(lambda: phase(short), "Completed")
    listed = workloads.get_workloads(filter_by=["name=^s", "phase==Completed"]).data
    trainings.delete_training(endless)
    wait_for(
        lambda: True if system.job(f"job-{endless}")["status"] == "CANCELLED" else None, seconds=30, what="its end"
    )

    assert (made.project_id, made.department_id, made.created_by) == ("1", "1", "ada")
    assert (row.project_id, row.submitted_by) == ("1", "ada")
    assert (row.project_name, row.priority_class_name, row.running_pods) == ("default", "train", 1)
    assert [_typed(runai.Workload, each).name for each in listed["workloads"]] == ["short"]
    assert system.log_lines(f"job-{short}")[-1] == "step 2 True"
    with pytest.raises(runai.ApiException) as gone:
        trainings.get_training(endless)
    assert gone.value.status == 404


@pytest.mark.long
@pytest.mark.timeout(200)
def test_runai_client_leads_a_distributed_training(two_nodes: System) -> None:
    system = two_nodes
    mounted = system.inputs / "nfs/nas/sets"
    mounted.mkdir(parents=True)
    (mounted / "words.txt").write_text("one two")
    client = runai_of(system).workloads
    reads = "echo node $RANK of $WORLD_SIZE reads $(cat $WORDS) $(cat /mnt/[s]ets/words.txt)"
    says = f"{reads}; for _ in $(seq 8); do sleep 0.5; done"
    spec = runai.DistributedSpecSpec(
        command="sh",
        args=f"-c '{says}'",
        numWorkers=1,
        distributedFramework=runai.DistributedFramework.PYTORCH,
        environmentVariables=[runai.EnvironmentVariable(name="WORDS", value="/mnt/sets/words.txt")],
        storage=runai.SupersetSpecAllOfStorage(
            nfs=[runai.NfsInstance(server="nas", path="/sets", mountPath="/mnt/sets")]
        ),
    )
    wanted = runai.DistributedCreationRequest(
        name="both", projectId="default", clusterId=CLUSTER, spec=spec, masterSpecSameAsWorker=True
    )

    begun = datetime.now(UTC)
    made = _typed(runai.DistributedWorkload, client.distributed.create_distributed(wanted).data).workload_id

    def phase() -> str:
        found = _typed(runai.DistributedWorkload, client.distributed.get_distributed(made).data).actual_phase
        return str(found and found.value)

    _until(phase, "Running")
    pods = _typed(runai.ListPods200Response, client.pods.get_workload_pods(made).data).pods
    _until(phase, "Completed")
    counted = client.workloads.get_workload_metrics(
        made, [runai.WorkloadMetricType.POD_COUNT], begun, datetime.now(UTC), number_of_samples=50
    )

    assert sorted(str(pod.node_name) for pod in pods) == ["n1", "n2"]
    assert {pod.k8s_phase for pod in pods} == {"Running"}
    for rank in (0, 1):
        assert system.log_lines(f"job-{made}", rank=rank)[-1] == f"node {rank} of 2 reads one two one two"
    values = [each.value for each in _typed(runai.MetricsResponse, counted.data).measurements[0].values or []]
    assert "2" in values


@pytest.mark.long
@pytest.mark.timeout(200)
def test_runai_client_has_a_master_of_its_own_and_copies(two_nodes: System) -> None:
    system = two_nodes
    client = runai_of(system).workloads
    says = """-c 'echo $WHO $RANK of $WORLD_SIZE; sleep 1'"""
    stage, who = (runai.EnvironmentVariable(name=name, value="the", exclude=False) for name in ("STAGE", "WHO"))
    wanted = runai.DistributedCreationRequest(
        name="led",
        projectId="default",
        clusterId=CLUSTER,
        spec=runai.DistributedSpecSpec(
            command="sleep",
            args="300",
            numWorkers=2,
            environmentVariables=[stage],
            cleanPodPolicy=runai.CleanPodPolicy.RUNNING,
        ),
        masterSpec=runai.MasterSpec(
            command="sh",
            args=says,
            environmentVariables=[who],
            compute=runai.SupersetSpecAllOfCompute(cpuCoreRequest=1),
        ),
    )
    trials = runai.TrainingSpecSpec(
        command="sh", args="-c 'echo run $JOB_COMPLETION_INDEX'", completions=3, parallelism=2
    )
    search = runai.TrainingCreationRequest(name="trials", projectId="default", clusterId=CLUSTER, spec=trials)

    made = _typed(runai.DistributedWorkload, client.distributed.create_distributed(wanted).data).workload_id
    tried = _typed(runai.Training1, client.trainings.create_training1(search).data).workload_id

    def read() -> Any:
        return _typed(runai.DistributedWorkload, client.distributed.get_distributed(made).data)

    def read_copies() -> Any:
        return _typed(runai.Training1, client.trainings.get_training(tried).data)

    _until(lambda: str(read().actual_phase.value), "Completed")
    _until(lambda: str(read_copies().actual_phase.value), "Completed")
    pods = _typed(runai.ListPods200Response, client.pods.get_workload_pods(made).data).pods
    for name in ("spec", "master_spec"):
        sent, returned = (getattr(each, name).model_dump(exclude_none=True) for each in (wanted, read()))
        assert returned == sent
    assert [pod.name for pod in pods] == ["led-master-0", "led-worker-0", "led-worker-1"]
    assert {pod.k8s_phase for pod in pods} == {"Succeeded"}
    assert system.log_lines(f"job-{made}", rank=0) == ["the 0 of 3"]
    assert [system.log_lines(f"job-{tried}", rank=rank) for rank in (0, 1)] == [["run 0", "run 2"], ["run 1"]]


@pytest.mark.long
@pytest.mark.timeout(300)
def test_one_job_in_all_vocabularies(two_nodes: System, forked_agents: ForkedAgents, assets: dict[str, str]) -> None:
    """Made in ModelArts' words, suspended in Run:ai's, read in three others, resumed and finished natively."""
    system = two_nodes
    forked_agents.serve_system(system)
    data, base = system.inputs / "everywhere.jsonl", system.inputs / "everywhere"
    shutil.copy(assets["train"], data)
    shutil.copytree(assets["model"], base)
    values = {"base_model": str(base), "max_steps": "60", "save_steps": "5", "learning_rate": "1e-3"}
    parameters = [{"name": name, "value": value} for name, value in values.items() if name != "save_steps"]
    source = {"name": "data", "remote": {"obs": {"obs_url": f"file://{data}"}}}
    algorithm = {"id": "sft", "parameters": parameters, "inputs": [source]}
    body = {"kind": "job", "metadata": {"name": "everywhere"}, "algorithm": algorithm}

    status, made = system.call("POST", "/v2/default/training-jobs", body)
    assert status == 201, made
    uuid, job_id = made["metadata"]["id"], f"job-{made['metadata']['id']}"
    system.wait_for_step(job_id, 5, seconds=240)
    assert system.call("POST", f"/api/v1/workloads/trainings/{uuid}/suspend")[0] == 202
    system.wait_for_status(job_id, "PAUSED")
    progress = cyxwiz(system, "GET", f"/jobs/{job_id}", pb.JobStatus)
    resource = system.call("GET", f"/apis/ome.io/v1beta1/namespaces/default/trainingjobs/{job_id}")[1]
    paused = system.call("GET", f"/v2/default/training-jobs/{uuid}")[1]
    tuned = system.call("GET", f"/openai/v1/fine_tuning/jobs/ftjob-{uuid}")[1]
    assert system.call("POST", f"/v1/jobs/{job_id}/resume")[0] == 202
    system.wait_for_status(job_id, "COMPLETED", seconds=200)
    ended = system.call("GET", f"/v2/default/training-jobs/{uuid}")[1]

    assert progress.status == pb.JobStatus.PAUSED
    holding = [each["type"] for each in resource["status"]["conditions"] if each["status"] == "True"]
    assert (holding[-1], resource["spec"]["suspend"]) == ("Suspended", True)
    assert paused["status"]["phase"] == "Pending"
    assert (tuned["status"], tuned["model"]) == ("paused", str(base))
    assert ended["status"]["phase"] == "Completed"
    assert system.call("GET", f"/openai/v1/fine_tuning/jobs/ftjob-{uuid}")[1]["status"] == "succeeded"
    assert [each["start_type"] for each in ended["status"]["running_records"]] == ["init_or_rescheduled"] * 2
    assert system.call("GET", f"/api/v1/workloads/{uuid}")[1]["phase"] == "Completed"
