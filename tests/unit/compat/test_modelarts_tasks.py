"""ModelArts' heterogeneous jobs: tasks become roles, with their code, channels, flavors and variables."""

from typing import Any

import pytest

from app.compat.modelarts.from_native import job_of
from app.domain.errors import BadSpec
from app.http.request_body import validated
from app.schemas.jobs import SubmitJobSchema
from tests.unit.compat.test_modelarts import ALGORITHM, CLUSTER, details_of, named, translated

TEMPLATE = {"annotations": {"job_template": "Template RL"}}
DATA = {"name": "data", "local_dir": "/home/ma-user/inputs/data", "remote": {"obs": {"obs_url": "/bucket/data/"}}}
TRAINER: dict[str, Any] = {
    "role": "Trainer",
    "algorithm": {
        "code_dir": "obs://bucket/rl/trainer/",
        "boot_file": "obs://bucket/rl/trainer/train.py",
        "inputs": [DATA],
        "outputs": [{"name": "out", "local_dir": "/home/ma-user/out", "remote": {"obs": {"obs_url": "/bucket/out/"}}}],
        "environments": {"MODE": "fast", "MY_TOKEN": "s3cret"},
        "job_config": {"parameters": [{"name": "steps", "value": "3"}]},
    },
    "task_resource": {"flavor_id": "trainyard.nvidia-a100.4"},
}
ROLLOUT: dict[str, Any] = {
    "role": "rollout",
    "algorithm": {
        "code_dir": "obs://bucket/rl/rollout/",
        "boot_file": "obs://bucket/rl/rollout/serve.py",
        "inputs": [DATA],
    },
    "task_resource": {"flavor_id": "trainyard.cpu.1", "node_count": 2, "pool_id": "pool-1"},
}
PARAMETERS = [{"name": "seed", "value": "7"}]
MODEL = [{"name": "base_model", "value": "team/base"}]


def test_tasks_become_roles_with_flavors_and_counts() -> None:
    native = translated({}, metadata=TEMPLATE, tasks=[TRAINER, ROLLOUT])

    trainer, rollout = native.document["tasks"]
    assert (trainer["role"], trainer["count"]) == ("trainer", 1)
    assert trainer["resource_config"] == {"gpu_count": 4, "gpu_type": "NVIDIA A100"}
    assert trainer["training_config"]["config"] == {"num_proc_per_node": "1"}
    assert trainer["training_config"]["environment"] == {"MODE": "fast", "MY_TOKEN": "s3cret"}
    assert (rollout["role"], rollout["count"]) == ("rollout", 2)
    assert rollout["resource_config"] == {"gpu_count": 1, "device_type": "cpu", "required_node_labels": ["pool-1"]}
    assert named(native) == []
    assert validated(SubmitJobSchema(), native.document).tasks[1].count == 2


def test_code_of_tasks_is_a_part_of_one_directory() -> None:
    native = translated({"parameters": PARAMETERS}, tasks=[TRAINER, ROLLOUT])

    training = native.document["training_config"]
    assert training["framework"] == {"type": "CUSTOM", "custom_code_dir": "obs://bucket/rl"}
    trainer, rollout = (task["training_config"] for task in native.document["tasks"])
    here = "$(TRAINYARD_RUN_DIR)/code"
    assert trainer["custom_command"][3:] == [
        f"{here}/trainer",
        f"{here}/trainer/train.py",
        "--seed=7",
        "--steps=3",
        "--data=$(TRAINYARD_DATA_0)",
        "--out=$(TRAINYARD_OUTPUT_DIR)",
    ]
    assert rollout["custom_command"][3:] == [
        f"{here}/rollout",
        f"{here}/rollout/serve.py",
        "--seed=7",
        "--data=$(TRAINYARD_DATA_0)",
    ]
    assert rollout["packages"]["requirements_file"] == "rollout/pip-requirements.txt"
    mounts = {each["path"]: each for each in native.document["resource_config"]["mounts"]}
    assert mounts["/home/ma-user/modelarts/user-job-dir/trainer"]["sub_path"] == "trainer"
    assert native.document["data_config"]["sources"] == [{"path": "obs://bucket/data/"}], "data of two tasks is once"
    assert native.document["output_config"] == {"output_path": "obs://bucket/out"}


def test_tasks_may_share_code_and_command() -> None:
    algorithm = {"code_dir": "file:///team/src/", "command": "python run.py", "inputs": [DATA]}
    native = translated(algorithm, tasks=[{"role": "a"}, {"role": "b", "algorithm": {"environments": {"PART": "b"}}}])

    first, second = (task["training_config"] for task in native.document["tasks"])
    assert first["custom_command"] == ["bash", "-c", "python run.py '--data=$(TRAINYARD_DATA_0)'"]
    assert second == {**first, "environment": {"PART": "b"}}
    assert native.document["training_config"]["framework"]["custom_code_dir"] == "/team/src/"


def test_a_template_without_tasks_has_no_effect() -> None:
    algorithm = {"code_dir": "file:///team/src/", "command": "python run.py"}
    assert named(translated(algorithm, metadata=TEMPLATE)) == ["metadata.annotations.job_template"]
    other = {"annotations": {"job_template": "Template X"}}
    assert named(translated(algorithm, metadata=other, tasks=[{"role": "a"}])) == ["metadata.annotations.job_template"]


def test_what_has_no_effect_is_named() -> None:
    task = {
        **ROLLOUT,
        "algorithm": {**ROLLOUT["algorithm"], "engine": {"engine_name": "PyTorch", "run_user": "1000"}},
        "log_export_path": {"obs_url": "obs://bucket/logs/", "host_path": "/srv/logs"},
    }
    assert named(translated({}, tasks=[TRAINER, task])) == [
        "tasks.algorithm.engine.engine_name",
        "tasks.log_export_path.host_path",
        "tasks.algorithm.engine.run_user",
    ]


def test_the_user_of_all_tasks_is_the_jobs() -> None:
    tasks = [
        {**each, "algorithm": {**each["algorithm"], "engine": {"run_user": "1000"}}} for each in (TRAINER, ROLLOUT)
    ]

    native = translated({}, tasks=tasks)

    assert native.document["resource_config"]["user"] == {"uid": 1000, "required": False}
    assert named(native) == []
    assert validated(SubmitJobSchema(), native.document).resource_config.user.uid == 1000


def test_logs_of_tasks_lie_in_one_directory() -> None:
    logs, others = ({"log_export_path": {"obs_url": f"/bucket/{name}/"}} for name in ("logs", "others"))

    native = translated({}, tasks=[{**TRAINER, **logs}, ROLLOUT])
    assert native.document["output_config"]["log_path"] == "obs://bucket/logs/"
    assert named(native) == []

    with pytest.raises(BadSpec) as refused:
        translated({}, tasks=[{**TRAINER, **logs}, {**ROLLOUT, **others}])
    assert refused.value.field == "tasks.log_export_path"
    with pytest.raises(BadSpec):
        translated({}, tasks=[{**TRAINER, **logs}], spec={**others})


def test_tasks_are_returned_as_they_were_sent() -> None:
    details = details_of(translated({}, metadata=TEMPLATE, tasks=[TRAINER, ROLLOUT]))

    job = job_of(details, (), CLUSTER)

    trainer, rollout = job["tasks"]
    sent = TRAINER["algorithm"]
    assert trainer["role"] == "Trainer"
    assert trainer["algorithm"] == {
        **sent,
        "inputs": {**DATA},
        "outputs": sent["outputs"][0],
        "environments": {"MODE": "fast", "MY_TOKEN": "s3cret"},
    }
    assert trainer["task_resource"]["flavor_id"] == "trainyard.nvidia-a100.4"
    assert trainer["task_resource"]["flavor_info"]["gpu"]["unit_num"] == 4
    assert (trainer["task_resource"]["flavor_type"], trainer["task_resource"]["max_num"]) == ("GPU", 1)
    assert (rollout["task_resource"]["node_count"], rollout["task_resource"]["pool_id"]) == (2, "pool-1")
    assert job["status"]["tasks"] == ["trainer-0", "rollout-0", "rollout-1"]
    assert job["metadata"]["annotations"] == TEMPLATE["annotations"]


@pytest.mark.parametrize(
    ("algorithm", "more", "field"),
    [
        (ALGORITHM, {"tasks": [{"role": "a"}], "spec": {"resource": {"node_count": 2}}}, "spec.resource.node_count"),
        ({"id": "sft", "parameters": MODEL}, {"tasks": [{"role": "a"}]}, "tasks"),
        (ALGORITHM, {"tasks": [{"role": "a", "task_resource": {"flavor_id": "x"}}]}, "tasks.0.task_resource.flavor_id"),
        ({}, {"tasks": [{"role": "a", "algorithm": {"code_dir": "obs://b/a/"}}]}, "tasks.0.algorithm.boot_file"),
        (
            {},
            {"tasks": [{"role": "a", "algorithm": {"code_dir": "obs://b/a/", "local_code_dir": "/x"}}]},
            "tasks.0.algorithm.local_code_dir",
        ),
        (
            {},
            {
                "tasks": [
                    {"role": n, "algorithm": {"code_dir": f"obs://{n}/a/", "boot_file": "x"}} for n in ("aa", "bb")
                ]
            },
            "tasks.algorithm.code_dir",
        ),
        (
            ALGORITHM,
            {
                "tasks": [
                    {
                        "role": n,
                        "algorithm": {
                            "inputs": [
                                {"name": n, "local_dir": "/home/x", "remote": {"obs": {"obs_url": f"/data/{n}/"}}}
                            ]
                        },
                    }
                    for n in ("aa", "bb")
                ]
            },
            "tasks.algorithm",
        ),
    ],
)
def test_what_tasks_can_not_have_is_refused_by_its_name(
    algorithm: dict[str, Any], more: dict[str, Any], field: str
) -> None:
    with pytest.raises(BadSpec) as refused:
        translated(algorithm, **more)
    assert refused.value.field == field
