"""A training and its rollouts on a node: their programs, their own specification, and the secret that they share."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from app.domain.scheduling.resources import Device
from app.domain.spec.model import JobDocument
from app.services.attempts.work_instances import WorkInstance
from app.services.attempts.work_orders import WorkOrder
from app.services.requests.storage_access import reading_rules
from config.redaction import MASK, Redaction
from config.settings import Settings, load_settings
from tests.unit.workers.tracking.test_run_facts import work
from trainyard.protocol.run_spec import RunSpec
from workers.attempt_failed import AttemptFailed
from workers.job_secrets import JOB_SECRET, attempt_secret
from workers.prepare.inputs.input_library import JobInputs, Library
from workers.prepare.job_image import JobImage
from workers.prepare.packages.job_packages import JobPackages
from workers.prepare.programs.roles import PreparedRoles, RolesHere, with_roles
from workers.rank.environment import rank_command
from workers.rank.role_environment import own_spec
from workers.rank.role_processes import RoleProcesses
from workers.run_dir.layout import run_directory
from workers.sandbox.sandbox import ProcessGroup

KEY = "k" * 43 + "="
TASKS = [
    {"role": "trainer", "program": "train", "resource_config": {"gpu_count": 2}},
    {"role": "rollout", "program": "rollout", "training_config": {"environment": {"A": "role"}}, "restart": "task"},
]


def order() -> WorkOrder:
    training = {"training_type": "RLHF", "framework": {"type": "HF_TRAINER"}, "max_retries": 2}
    document = JobDocument.from_json({"training_config": training, "tasks": TASKS})
    here: dict[str, Any] = {"node": "n", "part": 0, "index": 0}
    placed = (
        WorkInstance(role="trainer", devices=(0, 1), first_rank=0, ranks=2, **here),
        WorkInstance(role="rollout", devices=(2,), first_rank=2, ranks=1, **here),
    )
    slots = tuple(Device(index=number, type="cpu") for number in range(3))
    return replace(work(), document=document, devices=slots, all_instances=placed, threads_per_rank=1)


def roles(directory: Path, redaction: Redaction, *, key: str = KEY, asked: WorkOrder | None = None) -> PreparedRoles:
    settings: Settings = load_settings({"TRAINYARD_DATA_DIR": str(directory), "TRAINYARD_SECURITY_SECRET_KEY": key})
    spec = RunSpec(run_dir=directory, framework="HF_TRAINER", training_type="RLHF", world_size=3)
    library = Library(
        rules=reading_rules(settings), cache_dir=directory, project="default", project_of_job=lambda _job: None
    )
    run = run_directory(directory, "job-1", 1)
    here = RolesHere(settings, asked or order(), library, ProcessGroup(), run, redaction, JobImage(spec=spec))
    return with_roles(JobPackages(spec=spec), here, JobInputs(model=None, tokenizer=None, data=(), script=None), {})


@pytest.fixture
def prepared(tmp_path: Path) -> PreparedRoles:
    return roles(tmp_path, Redaction())


def test_each_role_has_its_part_of_the_trainer(prepared: PreparedRoles) -> None:
    trainer, rollout = prepared.spec.instances

    assert (trainer.program, trainer.rollouts, trainer.sidecar, trainer.max_restarts) == ("train", "rollout", False, 0)
    assert (rollout.program, rollout.rollouts, rollout.sidecar, rollout.max_restarts) == ("rollout", "", True, 2)
    assert prepared.environments["rollout"]["A"] == "role"


def test_the_training_reads_the_specification_of_a_job_on_its_own_devices(prepared: PreparedRoles) -> None:
    own = own_spec(prepared.spec, {"TRAINYARD_ROLE": "trainer", "TRAINYARD_TASK_INDEX": "0"})

    assert (own.world_size, own.ranks, own.nodes, own.instances) == (2, (0, 1), 1, ())
    assert own_spec(own, {}) is own


def beside(part: int) -> WorkOrder:
    """On one of two nodes: the training is on both, its rollouts and a script are on the second."""
    tasks = [
        {**TASKS[0], "count": 2, "resource_config": {"gpu_count": 1}},
        {**TASKS[1], "count": 1},
        {"role": "judge", "sidecar": True, "training_config": {"custom_command": ["judge", "$(TRAINYARD_ROLE)"]}},
    ]
    placed = (
        WorkInstance(role="trainer", index=0, node="n", part=0, devices=(0,), first_rank=0, ranks=1),
        WorkInstance(role="trainer", index=1, node="m", part=1, devices=(0,), first_rank=1, ranks=1),
        WorkInstance(role="rollout", index=0, node="m", part=1, devices=(1,), first_rank=2, ranks=1),
        WorkInstance(role="judge", index=0, node="m", part=1, devices=(2,), first_rank=3, ranks=1),
    )
    document = JobDocument.from_json({**order().document.to_json(), "tasks": tasks})
    return replace(order(), document=document, all_instances=placed, node_names=("n", "m"), part=part)


def test_a_training_on_two_nodes_is_one_world_of_its_own(tmp_path: Path) -> None:
    for part in (0, 1):
        prepared = roles(tmp_path, Redaction(), asked=beside(part))
        variables = {"TRAINYARD_ROLE": "trainer", "TRAINYARD_TASK_INDEX": str(part)}

        own = own_spec(prepared.spec, variables)

        assert (own.world_size, own.ranks, own.nodes, own.node_rank) == (2, (part,), 2, part)
        assert prepared.spec.leading_rank == part
        assert prepared.spec.instances[0].leader_index == 0, "where rank 0 listens"
    assert beside(0).saving_ranks == 2


def test_a_script_beside_a_training_runs_as_one_of_framework_custom(tmp_path: Path) -> None:
    prepared = roles(tmp_path, Redaction(), asked=beside(1))
    judge = prepared.spec.instances[-1]

    assert (judge.role, judge.program, judge.sidecar) == ("judge", "script", True)
    own = own_spec(prepared.spec, {"TRAINYARD_ROLE": "judge", "TRAINYARD_TASK_INDEX": "0"})
    assert (own.framework, own.world_size) == ("CUSTOM", 1)
    assert rank_command(own, tmp_path / "spec.json", {"TRAINYARD_ROLE": "judge"}) == ["judge", "judge"]
    assert prepared.spec.ranks_of_scripts == {3}
    without_training = replace(prepared.spec, instances=prepared.spec.instances[1:])
    assert without_training.leading_rank is None, "what a script says of itself is not that the training can save"


def test_a_script_beside_a_training_has_its_inputs_and_none_of_its_settings(tmp_path: Path) -> None:
    prepared = roles(tmp_path, Redaction(), asked=beside(1))
    spec = replace(
        prepared.spec,
        model_path="/model",
        hyperparameters={"algorithm": "grpo"},
        training_config={"halt_at": {"unit": "steps", "at": [4, 8]}},
        resume_checkpoint="/checkpoint",
        resume_step=4,
    )

    found = RoleProcesses(spec, tmp_path, [0, 1, 2], prepared.environments, {}, lambda *_: 0, lambda *_: None)
    variables = found.environments()[3]
    own = own_spec(spec, variables)

    assert variables["TRAINYARD_MODEL"] == "/model"
    assert "TRAINYARD_HALT_AT" not in variables
    assert (own.hyperparameters, own.training_config, own.halts) == ({}, {}, ())
    assert (own.resume_checkpoint, own.resume_step) == ("", 0)
    trains = own_spec(spec, found.environments()[1])
    assert (trains.halts, trains.resume_step, trains.hyperparameters) == ((4, 8), 4, {"algorithm": "grpo"})
    custom = own_spec(replace(spec, framework="CUSTOM"), variables)
    assert (custom.halts, custom.resume_step) == ((4, 8), 4), "the scripts are the job"


def test_checkpoints_belong_to_the_ranks_that_train() -> None:
    assert order().world_size == 3
    assert order().saving_ranks == 2
    assert replace(order(), document=JobDocument.from_json({"tasks": [{"role": "trainer"}]})).saving_ranks == 3


def test_ranks_are_started_with_the_program_of_their_role(prepared: PreparedRoles, tmp_path: Path) -> None:
    started: list[list[str]] = []
    variables: list[Any] = []

    def start(_spec: RunSpec, command: Sequence[str], _directory: Path, _log: int, environment: Any) -> int:
        started.append([*command[2:]])
        variables.append(environment)
        return len(started)

    ranks: dict[int, int] = {}
    own = RoleProcesses(
        prepared.spec, tmp_path / "spec.json", [0, 1, 2], prepared.environments, ranks, start, lambda *_: None
    )
    for each in prepared.spec.instances:
        own.start(each)

    given = ["--spec", str(tmp_path / "spec.json")]
    trains, completes = ["workers.trainers.main", *given], ["workers.trainers.rollouts.main", *given]
    assert started == [trains, trains, completes]
    assert [each.get("TRAINYARD_ROLLOUT_ROLE") for each in variables] == ["rollout", "rollout", None]
    assert [(each["RANK"], each["WORLD_SIZE"]) for each in variables] == [("0", "2"), ("1", "2"), ("0", "1")]
    assert len({each[JOB_SECRET] for each in variables}) == 1


def test_the_secret_is_of_the_attempt_and_is_masked_and_not_in_the_specification(tmp_path: Path) -> None:
    redaction = Redaction()
    prepared = roles(tmp_path, redaction)

    secret = prepared.environments["trainer"][JOB_SECRET]
    assert len(secret) == 64
    assert prepared.environments["rollout"][JOB_SECRET] == secret
    assert redaction(f"it is {secret}") == f"it is {MASK}"
    assert secret not in str(prepared.spec.to_document())
    settings: Settings = load_settings({"TRAINYARD_DATA_DIR": str(tmp_path), "TRAINYARD_SECURITY_SECRET_KEY": KEY})
    mine = order()
    assert attempt_secret(settings, job_id=mine.job_id, attempt=mine.attempt) == secret
    others = {attempt_secret(settings, job_id=job, attempt=n) for job, n in ((mine.job_id, 9), ("job-9", mine.attempt))}
    assert len(others | {secret}) == 3


def test_a_node_without_the_installations_key_runs_no_rollouts(tmp_path: Path) -> None:
    with pytest.raises(AttemptFailed, match="TRAINYARD_SECURITY_SECRET_KEY"):
        roles(tmp_path, Redaction(), key="")
