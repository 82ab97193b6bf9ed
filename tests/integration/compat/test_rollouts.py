"""A training with rollouts in the words of ModelArts, Run:ai and OME."""

from typing import Any

import pytest

from app.domain.lifecycle.states import JobState
from app.models import Job
from app.models.base import utc_now
from app.services.scheduling import planner
from tests.builders.factories import make_node
from tests.integration.compat import test_modelarts as modelarts
from tests.integration.compat import test_ome as ome
from tests.integration.compat import test_runai as runai
from tests.systems.apps import Api

HYPERPARAMETERS = {"algorithm": "grpo", "generation_backend": "engine", "reward": "length:64"}
NATIVE: dict[str, Any] = {
    "name": "grpo",
    "training_config": {
        "training_type": "RLHF",
        "framework": {"type": "HF_TRAINER"},
        "base_model": {"model_id": "/srv/models/tiny"},
        "hyperparameters": HYPERPARAMETERS,
    },
    "data_config": {"sources": [{"path": "/srv/data/train.jsonl"}]},
    "resource_config": {},
    "tasks": [
        {"role": "trainer", "program": "train", "resource_config": {"device_type": "cpu"}},
        {"role": "rollout", "program": "rollout", "count": 2, "resource_config": {"device_type": "cpu"}},
    ],
}
PARAMETERS = [
    {"name": "base_model", "value": "/srv/models/tiny"},
    {"name": "algorithm", "value": "grpo"},
    {"name": "reward", "value": "length:64"},
]
PAIR: dict[str, Any] = {
    "kind": "job",
    "metadata": {"name": "rl", "annotations": {"job_template": "Template RL"}},
    "algorithm": {
        "id": "rlhf",
        "parameters": PARAMETERS,
        "inputs": [{"name": "data", "remote": {"obs": {"obs_url": "obs://bucket/train.jsonl"}}}],
    },
    "tasks": [
        {"role": "Rollout", "task_resource": {"flavor_id": "trainyard.cpu.1", "node_count": 2}},
        {"role": "Actor", "algorithm": {"environments": {"MODE": "fast", "MY_TOKEN": "s3cret"}}},
    ],
}


@pytest.fixture
def served(sqlite_api: Api) -> Api:
    with sqlite_api.db.write() as session:
        make_node(session, "n1", devices=4)
    return sqlite_api


def placed(api: Api) -> str:
    """The number of a native training with rollouts that has been placed."""
    found: str = api.data(api.post("/v1/jobs", NATIVE), 201)["job_id"]
    with api.db.write() as session:
        row = session.get_one(Job, found)
        row.status, row.queued_at = JobState.QUEUED, utc_now()
    planner.plan_once(api.db)
    return found.removeprefix("job-")


def test_modelarts_shows_the_roles_as_tasks(served: Api) -> None:
    job = placed(served)

    shown = modelarts.said(served.call("GET", f"{modelarts.JOBS}/{job}"))

    assert [(task["role"], task["task_resource"]["node_count"]) for task in shown["tasks"]] == [
        ("trainer", 1),
        ("rollout", 2),
    ]
    assert shown["algorithm"]["id"] == "rlhf"
    assert {each["name"]: each["value"] for each in shown["algorithm"]["parameters"]}["algorithm"] == "grpo"
    tasks = modelarts.said(served.call("GET", f"{modelarts.JOBS}/{job}/tasks"))
    assert [task["task"] for task in tasks] == ["trainer-0", "rollout-0", "rollout-1"]
    # What was read makes another one.
    shown["metadata"]["name"] = "again"
    other = modelarts.said(served.post(modelarts.JOBS, shown), 201)["metadata"]["id"]
    first, second = (served.get(f"/v1/jobs/job-{each}")["tasks"] for each in (job, other))
    for ours, theirs in zip(first, second, strict=True):
        assert {name: theirs[name] for name in ("role", "program", "count")} == {
            name: ours[name] for name in ("role", "program", "count")
        }


def test_run_ai_shows_the_roles_as_pods(served: Api) -> None:
    job = placed(served)

    pods = runai.said(served.call("GET", f"{runai.BASE}/workloads/{job}/pods"))["pods"]
    shown = runai.said(served.call("GET", f"{runai.BASE}/workloads/distributed/{job}"))

    assert [pod["name"] for pod in pods] == ["grpo-trainer-0", "grpo-rollout-0", "grpo-rollout-1"]
    assert {pod["nodeName"] for pod in pods} == {"n1"}
    assert shown["spec"]["numWorkers"] == 2


def test_ome_shows_a_pod_for_each_rank_of_the_roles(served: Api) -> None:
    job = placed(served)

    pods = ome.said(served.call("GET", f"{ome.CORE}/pods?labelSelector=job-name%3Djob-{job}"))["items"]
    shown = ome.said(served.call("GET", f"{ome.JOBS}/job-{job}"))

    labels = [pod["metadata"]["labels"] for pod in pods]
    assert [(each["training.ome.io/role"], each["training.ome.io/rank"]) for each in labels] == [
        ("trainer", "0"),
        ("rollout", "1"),
        ("rollout", "2"),
    ]
    assert {pod["spec"]["nodeName"] for pod in pods} == {"n1"}
    assert shown["spec"]["trainer"]["numNodes"] == 1
    assert shown["status"]["jobsStatus"][0]["active"] == 3


def test_template_of_modelarts_makes_the_built_in_pair(served: Api) -> None:
    answered = served.post(modelarts.JOBS, PAIR)

    made = modelarts.said(answered, 201)
    native = served.get(f"/v1/jobs/job-{made['metadata']['id']}")
    assert answered.headers.getlist("Warning") == []
    assert [(role["role"], role["program"], role["count"]) for role in native["tasks"]] == [
        ("actor", "train", 1),
        ("rollout", "rollout", 2),
    ]
    assert native["tasks"][0]["training_config"]["environment"] == {"MODE": "fast", "MY_TOKEN": "***"}
    assert native["training_config"]["hyperparameters"]["generation_backend"] == "engine"
    read = modelarts.said(served.call("GET", f"{modelarts.JOBS}/{made['metadata']['id']}"))
    assert [(task["role"], task["task_resource"]["node_count"]) for task in read["tasks"]] == [
        ("Rollout", 2),
        ("Actor", 1),
    ]
    assert read["tasks"][1]["algorithm"]["environments"] == {"MODE": "fast", "MY_TOKEN": "***"}
    assert read["algorithm"]["parameters"] == PARAMETERS


def test_training_of_modelarts_template_may_have_several_nodes(served: Api) -> None:
    rollout, actor = PAIR["tasks"]
    tasks = [rollout, {**actor, "task_resource": {"flavor_id": "trainyard.cpu.1", "node_count": 2}}]

    made = modelarts.said(served.post(modelarts.JOBS, {**PAIR, "tasks": tasks}), 201)

    trains, completes = served.get(f"/v1/jobs/job-{made['metadata']['id']}")["tasks"]
    assert (trains["program"], trains["count"], completes["count"]) == ("train", 2, 2)
    read = modelarts.said(served.call("GET", f"{modelarts.JOBS}/{made['metadata']['id']}"))
    assert [task["task_resource"]["node_count"] for task in read["tasks"]] == [2, 2]


def test_a_task_with_a_script_is_beside_the_built_in_pair(served: Api) -> None:
    judge = {
        "role": "Judge",
        "algorithm": {
            "code_dir": "file:///srv/rl/judge/",
            "boot_file": "file:///srv/rl/judge/serve.py",
            "environments": {"MODE": "strict"},
            "job_config": {"parameters": [{"name": "port", "value": "8000"}]},
        },
        "task_resource": {"flavor_id": "trainyard.cpu.1"},
    }

    answered = served.post(modelarts.JOBS, {**PAIR, "tasks": [judge, *PAIR["tasks"]]})

    made = modelarts.said(answered, 201)["metadata"]["id"]
    assert answered.headers.getlist("Warning") == []
    roles = served.get(f"/v1/jobs/job-{made}")["tasks"]
    assert [(role["role"], role.get("program")) for role in roles] == [
        ("actor", "train"),
        ("rollout", "rollout"),
        ("judge", "script"),
    ]
    assert roles[2]["sidecar"] is True
    assert roles[2]["training_config"] == {
        "custom_script_path": "/srv/rl/judge/serve.py",
        "custom_arguments": ["--port=8000"],
        "environment": {"MODE": "strict"},
        "config": {"num_proc_per_node": "1"},
    }
    read = modelarts.said(served.call("GET", f"{modelarts.JOBS}/{made}"))
    assert [task["role"] for task in read["tasks"]] == ["Judge", "Rollout", "Actor"]
    read["metadata"]["name"] = "again"
    read["tasks"][2]["algorithm"]["environments"] = {}  # secrets are read as ***
    again = modelarts.said(served.post(modelarts.JOBS, read), 201)["metadata"]["id"]
    assert served.get(f"/v1/jobs/job-{again}")["tasks"][2] == roles[2]


SCRIPT = {"boot_file": "file:///srv/rl/judge/serve.py"}


@pytest.mark.parametrize(
    ("tasks", "parameters", "field"),
    [
        ([{"role": "trainer"}], PARAMETERS, "tasks"),
        ([{"role": "trainer"}, {"role": "rollout"}, {"role": "reward"}], PARAMETERS, "tasks"),
        ([{"role": "rollout-a"}, {"role": "rollout-b"}], PARAMETERS, "tasks"),
        *(
            (
                [{"role": "trainer"}, {"role": "rollout"}, {"role": "judge", "algorithm": {**SCRIPT, **own}}],
                PARAMETERS,
                f"tasks.2.algorithm.{field}",
            )
            for own, field in (
                ({"boot_file": "obs://b/serve.py"}, "boot_file"),
                ({"code_dir": "file:///srv/rl/"}, "code_dir"),
                ({"working_dir": "/home/x"}, "working_dir"),
                (
                    {"job_config": {"inputs": [{"name": "a", "remote": {"obs": {"obs_url": "/b/"}}}]}},
                    "job_config.inputs",
                ),
            )
        ),
        (
            [{"role": "trainer", "algorithm": {"boot_file": "obs://b/x.py"}}, {"role": "rollout"}],
            PARAMETERS,
            "tasks.0.algorithm.boot_file",
        ),
        ([{"role": "trainer"}, {"role": "rollout"}], [PARAMETERS[0], {"name": "algorithm", "value": "ppo"}], "tasks"),
        (
            [{"role": "trainer"}, {"role": "rollout", "task_resource": {"flavor_id": "x"}}],
            PARAMETERS,
            "tasks.1.task_resource.flavor_id",
        ),
    ],
)
def test_pair_that_can_not_be_is_refused_by_its_field(served: Api, tasks: Any, parameters: Any, field: str) -> None:
    body = {**PAIR, "tasks": tasks, "algorithm": {**PAIR["algorithm"], "parameters": parameters}}

    assert modelarts.said(served.post(modelarts.JOBS, body), 400)["error_msg"].partition(":")[0] == field
