"""A training with rollouts over HTTP: where its roles would start, its memory, and what is refused."""

from typing import Any

import pytest

from tests.builders.factories import make_document, make_node
from tests.systems.apps import Api

DRY = "/v1/jobs?dry_run=true"
HYPERPARAMETERS = {"generation_backend": "engine", "num_generations": "2", "max_completion_length": "32"}


@pytest.fixture
def gpus(api: Api) -> None:
    with api.db.write() as session:
        make_node(session, "n1", devices=4, device_type="a100", memory_mb=40 * 1024)
        make_node(session, "n2", devices=2, device_type="l4", memory_mb=24 * 1024)


def document(model: str = "Qwen/Qwen2.5-0.5B", **changes: Any) -> dict[str, Any]:
    made = make_document()
    made["training_config"] |= {
        "training_type": "RLHF",
        "framework": {"type": "HF_TRAINER"},
        "base_model": {"model_id": model},
        "hyperparameters": HYPERPARAMETERS,
    }
    made["data_config"] |= {"batch_size": 1}
    tasks = [
        {"role": "trainer", "program": "train", "resource_config": {"gpu_count": 2, "gpu_type": "a100"}},
        {"role": "rollout", "program": "rollout", "count": 3, "restart": "task"},
    ]
    return {**made, "resource_config": {}, "tasks": tasks, **changes}


@pytest.mark.usefixtures("gpus")
def test_a_dry_run_says_where_training_and_rollouts_would_start(api: Api) -> None:
    plan = api.data(api.post(DRY, document()))["plan"]

    placed = {(each["role"], each["index"]): each["node"] for each in plan["instances"]}
    assert placed["trainer", 0] == "n1"
    assert len(placed) == 4
    assert plan["memory"]["verdict"] == "fits"
    assert plan["memory"]["devices"] == 2
    assert plan["memory"]["device_type"] == "a100"
    assert any("rollouts" in note for note in plan["memory"]["notes"])


@pytest.mark.usefixtures("gpus")
def test_the_devices_of_a_training_are_those_of_all_its_instances(api: Api) -> None:
    asked = document()
    trainer, rollout = asked["tasks"]
    asked["tasks"] = [{**trainer, "count": 2, "resource_config": {"gpu_count": 2}}, {**rollout, "count": 2}]

    plan = api.data(api.post(DRY, asked))["plan"]

    placed = {(each["role"], each["index"]): each["node"] for each in plan["instances"]}
    assert placed == {("trainer", 0): "n1", ("trainer", 1): "n1", ("rollout", 0): "n2", ("rollout", 1): "n2"}
    assert plan["memory"]["devices"] == 4
    asked["tasks"][0]["count"] = 3
    problem = api.problem(api.post(DRY, asked), 400)
    assert problem["details"][0]["field"].startswith("tasks"), "all six GPUs would do, but they are of two types"
    assert "trainer 3 × 2 GPUs (all of one type)" in problem["message"]


@pytest.mark.usefixtures("gpus")
def test_a_training_that_cannot_fit_is_refused_at_its_role(api: Api) -> None:
    problem = api.problem(api.post("/v1/jobs", document("meta-llama/Llama-3.1-8B")), 400)

    assert problem["details"][0]["field"] == "tasks.0.resource_config"
    assert "use_lora with gradient checkpointing needs" in problem["message"]
    assert "FSDP" not in problem["message"], "which takes devices that its role has not"
    divided = document("meta-llama/Llama-3.1-8B")
    divided["training_config"]["framework"] = {"type": "FSDP"}
    problem = api.problem(api.post("/v1/jobs", divided), 400)
    assert problem["details"][0]["field"] == "tasks.0.resource_config"
    assert "use_lora" in problem["message"]


@pytest.mark.usefixtures("gpus")
def test_a_job_shows_the_programs_of_its_roles_and_can_be_submitted_again(api: Api) -> None:
    job_id = api.data(api.post("/v1/jobs", document()), 201)["job_id"]

    job = api.get(f"/v1/jobs/{job_id}")

    assert [task.get("program") for task in job["tasks"]] == ["train", "rollout"]
    assert api.data(api.post(DRY, {**document(), "tasks": job["tasks"]}))["valid"] is True


@pytest.mark.usefixtures("gpus")
@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"program": "script"}, "tasks"),
        ({"training_config": {"custom_script_path": "/srv/a.py"}}, "tasks.1.training_config.custom_script_path"),
        ({"sidecar": False}, "tasks.1.sidecar"),
        ({"resource_config": {"gpu_count": 9}}, "tasks.1.resource_config.gpu_count"),
    ],
)
def test_what_can_not_be_is_refused_with_its_field(api: Api, change: dict[str, Any], field: str) -> None:
    asked = document()
    asked["tasks"][1] |= change

    problem = api.problem(api.post("/v1/jobs", asked), 400)

    assert problem["details"][0]["field"] == field


@pytest.mark.parametrize("program", ["judge", 5])
def test_a_program_that_does_not_exist_is_refused_with_those_that_do(api: Api, program: object) -> None:
    asked = document()
    asked["tasks"][1]["program"] = program

    problem = api.problem(api.post("/v1/jobs", asked), 422)

    assert problem["details"][0]["field"] == "tasks.1.program"
