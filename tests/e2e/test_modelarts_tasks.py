"""A heterogeneous job of ModelArts by Huawei Cloud's own SDK, at a running system: every field is read back."""

from typing import Any

import pytest
from huaweicloudsdkmodelarts.v1 import model

from tests.e2e.test_modelarts_sdk import client_of
from tests.systems.system import System, wait_for

TRAINER = """
import argparse, json, os, pathlib, socket, time
parser = argparse.ArgumentParser()
for name in ("words", "out"):
    parser.add_argument(f"--{name}")
asked = parser.parse_args()
places = json.loads(os.environ["TRAINYARD_TASKS"])["rollout"]
heard = []
for place in places:
    for _ in range(300):
        try:
            with socket.create_connection((place["address"], place["port"]), timeout=30) as peer:
                heard.append(peer.recv(100).decode())
            break
        except ConnectionRefusedError:
            time.sleep(0.1)
words = pathlib.Path(asked.words, "words.txt").read_text()
pathlib.Path(asked.out, "model.txt").write_text(f"{words} {' '.join(heard)}")
print("here", os.path.basename(os.getcwd()), os.environ["MODE"], *heard, flush=True)
"""
ROLLOUT = """
import json, os, socket
mine = json.loads(os.environ["TRAINYARD_TASKS"])["rollout"][int(os.environ["TRAINYARD_TASK_INDEX"])]
with socket.create_server((mine["address"], mine["port"])) as server:
    peer = server.accept()[0]
    peer.sendall(f"rollout-{os.environ['TRAINYARD_TASK_INDEX']}".encode())
    peer.close()
print("answered", flush=True)
"""


def _task(role: str, **algorithm: Any) -> model.Task:
    algorithm |= {"code_dir": f"/team/rl/{role}/", "boot_file": f"/team/rl/{role}/{role}.py"}
    return model.Task(
        role=role,
        algorithm=model.TaskAlgorithm(**algorithm),
        task_resource=model.TaskTaskResource(flavor_id="trainyard.cpu.1", node_count=1),
    )


def _request() -> model.CreateTrainingJobRequest:
    trainer = _task(
        "trainer",
        inputs=[
            model.TaskAlgorithmInputs(
                name="words",
                local_dir="/home/ma-user/words",
                remote=model.InputDataInfo(obs=model.InputDataInfoObs(obs_url="/team/words/")),
            )
        ],
        outputs=[
            model.TaskAlgorithmOutputs(
                name="out",
                local_dir="/home/ma-user/out",
                remote=model.TaskAlgorithmRemote(obs=model.TaskAlgorithmRemoteObs(obs_url="/team/out/rl/")),
            )
        ],
        engine=model.TaskAlgorithmEngine(engine_id="e-1", engine_name="PyTorch", engine_version="2", run_user="1000"),
        local_code_dir="/home/ma-user/trainer",
        working_dir="/home/ma-user/trainer",
        environments={"MODE": "fast"},
    )
    metadata = model.JobMetadata(name="rl", annotations={"job_template": "Template RL"})
    body = model.Job(
        kind="job",
        metadata=metadata,
        algorithm=model.JobAlgorithm(),
        tasks=[trainer, _task("rollout")],
        spec=model.Spec(resource=model.SpecResource()),
    )
    return model.CreateTrainingJobRequest(body=body)


@pytest.mark.long
@pytest.mark.timeout(200)
def test_sdk_creates_a_heterogeneous_job_and_reads_every_field(shared_system: System) -> None:
    bucket = shared_system.data_dir / "files/obs/team"
    for path, text in (
        ("rl/trainer/trainer.py", TRAINER),
        ("rl/rollout/rollout.py", ROLLOUT),
        ("words/words.txt", "one two"),
    ):
        (bucket / path).parent.mkdir(parents=True, exist_ok=True)
        (bucket / path).write_text(text)
    with client_of(shared_system) as client:
        job_id = client.create_training_job(_request()).metadata.id
        asked = model.ShowTrainingJobDetailsRequest(training_job_id=job_id)

        def ended() -> Any:
            shown = client.show_training_job_details(asked)
            return shown if shown.status.phase in ("Completed", "Failed", "Abnormal") else None

        shown = wait_for(ended, seconds=90, what="the end of the job")
        of_task = {"training_job_id": job_id, "task_id": "trainer-0"}
        log = client.show_training_job_logs_preview(model.ShowTrainingJobLogsPreviewRequest(**of_task))
    assert shown.status.phase == "Completed", shown.status
    assert log.content == "here trainer fast rollout-0\n"
    assert (bucket / "out/rl/model.txt").read_text() == "one two rollout-0"
    assert shown.status.tasks == ["trainer-0", "rollout-0"]
    trainer, rollout = shown.tasks
    _check(trainer)
    assert rollout.role == "rollout"
    assert rollout.algorithm.code_dir == "/team/rl/rollout/"
    assert shown.metadata.annotations == {"job_template": "Template RL"}


def _check(task: Any) -> None:
    """The fields of tables 29 to 37 of the documentation."""
    algorithm, resource = task.algorithm, task.task_resource
    assert (task.role, algorithm.code_dir) == ("trainer", "/team/rl/trainer/")
    assert algorithm.boot_file == "/team/rl/trainer/trainer.py"
    assert (algorithm.local_code_dir, algorithm.working_dir) == ("/home/ma-user/trainer", "/home/ma-user/trainer")
    assert algorithm.environments == {"MODE": "fast"}
    assert (algorithm.inputs.name, algorithm.inputs.local_dir) == ("words", "/home/ma-user/words")
    assert algorithm.inputs.remote.obs.obs_url == "/team/words/"
    assert (algorithm.outputs.name, algorithm.outputs.local_dir) == ("out", "/home/ma-user/out")
    assert algorithm.outputs.remote.obs.obs_url == "/team/out/rl/"
    engine = algorithm.engine
    assert (engine.engine_id, engine.engine_name, engine.engine_version) == ("e-1", "PyTorch", "2")
    assert engine.run_user == "1000"
    assert (resource.flavor_id, resource.flavor_name, resource.flavor_type) == (
        "trainyard.cpu.1",
        "trainyard.cpu.1",
        "CPU",
    )
    assert resource.max_num >= 1
    assert resource.billing.unit_num == 1
    assert resource.flavor_info.cpu.core_num >= 0


@pytest.mark.long
@pytest.mark.timeout(200)
def test_sdk_creates_the_built_in_training_with_rollouts(shared_system: System) -> None:
    values = {"base_model": str(shared_system.inputs / "none"), "algorithm": "grpo", "reward": "length:64"}
    parameters = [model.Parameters(name=name, value=value) for name, value in values.items()]
    tasks = [
        model.Task(role=role, task_resource=model.TaskTaskResource(flavor_id="trainyard.cpu.1", node_count=1))
        for role in ("trainer", "rollout")
    ]
    remote = model.InputDataInfo(obs=model.InputDataInfoObs(obs_url="obs://team/words/words.jsonl"))
    body = model.Job(
        kind="job",
        metadata=model.JobMetadata(name="rl-pair", annotations={"job_template": "Template RL"}),
        algorithm=model.JobAlgorithm(
            id="rlhf", parameters=parameters, inputs=[model.Input(name="words", remote=remote)]
        ),
        tasks=tasks,
    )
    with client_of(shared_system) as client:
        job_id = client.create_training_job(model.CreateTrainingJobRequest(body=body)).metadata.id
        shown = client.show_training_job_details(model.ShowTrainingJobDetailsRequest(training_job_id=job_id))
        client.delete_training_job(model.DeleteTrainingJobRequest(training_job_id=job_id))
    native = shared_system.job(f"job-{job_id}")
    assert [(role["role"], role["program"]) for role in native["tasks"]] == [
        ("trainer", "train"),
        ("rollout", "rollout"),
    ]
    assert [task.role for task in shown.tasks] == ["trainer", "rollout"]
    assert shown.algorithm.id == "rlhf"
    assert {each.name: each.value for each in shown.algorithm.parameters} == values
