"""Roles of a built-in trainer: what their rules refuse, and what each of them is checked and placed as."""

from typing import Any

import pytest

from app.domain.scheduling.resources import request_of
from app.domain.spec.role_documents import document_of, has_rollouts, training_of
from tests.builders.submitted import GOOD, changed, refusal, spec_of

TRAIN = {"role": "trainer", "program": "train", "resource_config": {"gpu_count": 2, "device_type": "cuda"}}
ROLLS = {"role": "rollout", "program": "rollout", "count": 3, "restart": "task"}
JUDGE = {"role": "judge", "sidecar": True, "training_config": {"custom_command": ["python", "-m", "http.server"]}}
HYPERPARAMETERS = {"generation_backend": "engine", "num_generations": "4", "max_completion_length": "12"}
POLICY = {"training_type": "RLHF", "hyperparameters": HYPERPARAMETERS}


def document(*tasks: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """A training of a policy with these roles; ``a__b`` stands for the path a.b."""
    start = changed(
        ("training_config", {**GOOD["training_config"], **POLICY}),
        ("resource_config", {}),
        ("data_config.batch_size", 4),
        ("tasks", list(tasks or (TRAIN, ROLLS))),
    )
    return changed(*((path.replace("__", "."), value) for path, value in changes.items()), start=start)


def test_a_training_with_rollouts_is_stored_as_it_was_given() -> None:
    found = spec_of(document()).document

    assert found.to_json()["tasks"] == [TRAIN, ROLLS]
    assert has_rollouts(found)
    assert [role.is_sidecar for role in found.tasks] == [False, True]
    assert training_of(found).resource_config.gpu_count == 2
    assert training_of(found).tasks == ()


def test_the_devices_of_rollouts_need_not_divide_a_step() -> None:
    roles = TRAIN, {**ROLLS, "count": 1, "resource_config": {"gpu_count": 3}}
    found = spec_of(document(*roles, data_config__batch_size=2)).document

    asked = request_of(found, has_gpus=False)
    assert [(each.role, each.count, each.each.device_count) for each in asked.roles] == [
        ("trainer", 1, 2),
        ("rollout", 1, 3),
    ]
    assert document_of(found, found.tasks[1]).training_config.hyperparameters == HYPERPARAMETERS


def test_instances_of_the_role_that_trains_are_the_nodes_of_the_training() -> None:
    found = spec_of(document({**TRAIN, "count": 2}, ROLLS, data_config__batch_size=1)).document

    training = training_of(found).resource_config
    assert (training.node_count, training.gpu_count) == (2, 2), "num_generations divides the step of all four devices"
    trainer, rollout = request_of(found, has_gpus=True).roles
    assert (trainer.count, trainer.each.node_count, trainer.alike) == (2, 1, True)
    assert not rollout.alike


def test_a_script_beside_a_training_is_one_of_framework_custom() -> None:
    program = {"custom_command": ["python", "-m", "http.server"], "packages": {"requirements": ["numpy==2.1.0"]}}
    judge = {**JUDGE, "training_config": program}
    halts = {"training_config__halt_at": {"at": [2, 4]}}

    found = spec_of(document(TRAIN, ROLLS, judge, {**JUDGE, "role": "other"}, **halts)).document

    own = document_of(found, found.tasks[2])
    assert own.training_config.framework.type == "CUSTOM"
    assert own.training_config.framework.custom_command == ("python", "-m", "http.server")
    assert own.training_config.hyperparameters == {}
    assert own.training_config.halt_at is None
    trainer, _, asked, other = request_of(found, has_gpus=True).roles
    assert asked.each.required_capabilities - other.each.required_capabilities == {"packages"}
    assert not trainer.each.required_capabilities
    assert training_of(found).training_config.framework.type == "HF_TRAINER"


@pytest.mark.parametrize("number", [0, 1])
def test_a_part_of_a_training_has_no_image_and_a_script_beside_it_may(number: int) -> None:
    image: dict[str, Any] = {"image": {"reference": "oci:/srv/x"}}
    roles: list[dict[str, Any]] = [TRAIN, ROLLS, {**JUDGE, "resource_config": image}]
    assert request_of(spec_of(document(*roles)).document, has_gpus=True).roles[2].image.reference == "oci:/srv/x"

    roles[number] = {**roles[number], "resource_config": {"gpu_count": 2, **image}}
    error = refusal(document(*roles))

    assert error.field == f"tasks.{number}.resource_config.image.reference"
    assert "images are for the scripts" in error.message


@pytest.mark.parametrize("framework", ["FSDP", "DEEPSPEED"])
def test_a_divided_model_has_the_engine_only_by_rollouts(framework: str) -> None:
    policy = {"training_config__framework__type": framework}
    adapter = {"training_config__hyperparameters": {**HYPERPARAMETERS, "use_lora": "true"}}

    assert has_rollouts(spec_of(document(TRAIN, ROLLS, **policy, **adapter)).document)
    alone = document(**policy, resource_config={"gpu_count": 2, "device_type": "cuda"})
    del alone["tasks"]
    error = refusal(alone)
    assert error.field == "training_config.hyperparameters.generation_backend"
    assert "add a role with program rollout" in error.message


def test_a_base_that_is_divided_is_compared_on_devices_of_one_kind() -> None:
    adapter = {"training_config__hyperparameters": {**HYPERPARAMETERS, "use_lora": "true"}}
    fsdp: dict[str, Any] = {"training_config__framework": {"type": "FSDP"}}
    zero: dict[str, Any] = {"training_config__framework": {"type": "DEEPSPEED", "config": {"zero_stage": "3"}}}
    on_cpu = {**ROLLS, "resource_config": {"gpu_count": 1, "device_type": "cpu"}}
    one = {**TRAIN, "resource_config": {"gpu_count": 1, "device_type": "cuda"}}

    for framework, trains in ((fsdp, TRAIN), (zero, TRAIN), (zero, one)):
        error = refusal(document(trains, on_cpu, **framework, **adapter))
        assert error.field == "tasks.1.resource_config.device_type"
        assert "ask for device_type cuda here, or train with HF_TRAINER" in error.message
    gpus = {**ROLLS, "resource_config": {"gpu_type": "H100"}}
    slots = {**TRAIN, "resource_config": {"gpu_count": 2, "device_type": "cpu"}}
    assert "ask for device_type cpu" in refusal(document(slots, gpus, **fsdp, **adapter)).message
    auto: dict[str, Any] = {**TRAIN, "resource_config": {"gpu_count": 2}}
    for trains, rolls, number in ((slots, ROLLS, 1), (auto, on_cpu, 0)):
        error = refusal(document(trains, rolls, **fsdp, **adapter))
        assert error.field == f"tasks.{number}.resource_config.device_type"
        assert "auto, GPUs where any node has one" in error.message
        assert "ask for device_type cpu here" in error.message

    nowhere_divided = {"training_config__framework": {"type": "DEEPSPEED", "config": {"zero_stage": "2"}}}
    for framework, trains in ((fsdp, one), (nowhere_divided, TRAIN), ({}, TRAIN)):
        assert has_rollouts(spec_of(document(trains, on_cpu, **framework, **adapter)).document)
    assert has_rollouts(spec_of(document(TRAIN, on_cpu, **fsdp)).document), "nothing is frozen"
    for trains, rolls in ((TRAIN, ROLLS), (auto, ROLLS), (auto, gpus), (slots, on_cpu)):
        assert has_rollouts(spec_of(document(trains, rolls, **fsdp, **adapter)).document), "one kind, on any nodes"


def test_a_job_without_roles_trains_what_it_is() -> None:
    found = spec_of(changed()).document
    assert training_of(found) is found
    assert not has_rollouts(found)


@pytest.mark.parametrize(
    ("tasks", "changes", "field", "says"),
    [
        ([TRAIN], {}, "tasks", "add one with program rollout"),
        ([ROLLS, TRAIN], {}, "tasks.0.program", "say train"),
        ([TRAIN, ROLLS, {**TRAIN, "role": "b"}], {}, "tasks.2.program", "two roles with program train"),
        ([TRAIN, ROLLS, {**ROLLS, "role": "b"}], {}, "tasks.2.program", "raise the count"),
        ([TRAIN, ROLLS, {**JUDGE, "sidecar": False}], {}, "tasks.2.sidecar", "say sidecar: true"),
        (
            [TRAIN, ROLLS, {**JUDGE, "training_config": {}}],
            {},
            "tasks.2.training_config.custom_script_path",
            "name its custom_script_path or its custom_command",
        ),
        (
            [TRAIN, ROLLS, {**JUDGE, "training_config": {"custom_script_path": "/etc/judge.py"}}],
            {},
            "tasks.2.training_config.custom_script_path",
            "",
        ),
        (
            [TRAIN, ROLLS, {**JUDGE, "training_config": {"custom_command": ["x"], "config": {"num_proc_per_node": 0}}}],
            {},
            "tasks.2.training_config.config.num_proc_per_node",
            "",
        ),
        ([{**JUDGE}, TRAIN, ROLLS], {}, "tasks.0.program", "say train"),
        ([TRAIN, JUDGE], {}, "tasks", "add one with program rollout"),
        ([{**TRAIN, "restart": "task"}, ROLLS], {}, "tasks.0.restart", "leave restart out"),
        ([{**TRAIN, "sidecar": True}, ROLLS], {}, "tasks.0.sidecar", "every role is a sidecar"),
        ([TRAIN, {**ROLLS, "sidecar": False}], {}, "tasks.1.sidecar", "leave sidecar out"),
        ([{**TRAIN, "world": "job"}, {**ROLLS, "world": "job"}], {}, "tasks.0.world", "leave world out"),
        ([TRAIN, {**ROLLS, "world": "instance"}], {}, "tasks.1.world", "leave world out"),
        (
            [TRAIN, {**ROLLS, "training_config": {"custom_command": ["x"]}}],
            {},
            "tasks.1.training_config.custom_command",
            "the job's training_config",
        ),
        (
            [TRAIN, {**ROLLS, "training_config": {"config": {"num_proc_per_node": 2}}}],
            {},
            "tasks.1.training_config.config",
            "leave it out",
        ),
        (
            [TRAIN, {**ROLLS, "training_config": {"environment": {"LD_PRELOAD": "x"}}}],
            {},
            "tasks.1.training_config.environment.LD_PRELOAD",
            "reserved",
        ),
        ([TRAIN, {**ROLLS, "resource_config": {"gpu_count": 0}}], {}, "tasks.1.resource_config.gpu_count", "at least"),
        (
            [TRAIN, ROLLS],
            {"training_config__hyperparameters": {**HYPERPARAMETERS, "generation_backend": "generate"}},
            "training_config.hyperparameters.generation_backend",
            "say engine",
        ),
        (
            [TRAIN, ROLLS],
            {"training_config__hyperparameters": {"num_generations": "4"}},
            "training_config.hyperparameters.generation_backend",
            "say engine",
        ),
        (
            [TRAIN, ROLLS],
            {"training_config__hyperparameters": {**HYPERPARAMETERS, "algorithm": "ppo"}},
            "tasks",
            "grpo or rloo of HF_TRAINER, FSDP or DEEPSPEED: HF_TRAINER RLHF with algorithm ppo starts equal ranks",
        ),
        (
            [TRAIN, ROLLS],
            {
                "training_config__framework__type": "FSDP",
                "training_config__hyperparameters": {**HYPERPARAMETERS, "beta": "much"},
            },
            "training_config.hyperparameters.beta",
            "much",
        ),
        ([TRAIN, ROLLS], {"training_config__training_type": "SFT"}, "tasks", "HF_TRAINER SFT starts equal ranks"),
        (
            [TRAIN, ROLLS],
            {
                "training_config__framework": {"type": "CUSTOM", "custom_script_path": "/srv/a.py"},
                "training_config__hyperparameters": {},
            },
            "tasks.0.program",
            "leave program out",
        ),
        ([TRAIN, ROLLS], {"resource_config__gpu_count": 2}, "resource_config.gpu_count", "give it to each role"),
        (
            [TRAIN, ROLLS],
            {"data_config__batch_size": 3},
            "training_config.hyperparameters.num_generations",
            "does not divide the 6 completions",
        ),
        (
            [{**TRAIN, "count": 3}, ROLLS],
            {"data_config__batch_size": 1},
            "training_config.hyperparameters.num_generations",
            "does not divide the 6 completions",
        ),
        ([TRAIN, {**ROLLS, "count": 64}], {}, "tasks", "at most 64"),
    ],
)
def test_what_breaks_a_rule_is_refused_with_its_field(
    tasks: list[dict[str, Any]], changes: dict[str, Any], field: str, says: str
) -> None:
    error = refusal(document(*tasks, **changes))
    assert error.field == field
    assert says in error.message
