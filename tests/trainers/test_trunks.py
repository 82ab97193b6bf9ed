"""Steps that two trainings are said to have in common are the same bit by bit, and a fork ends as a training alone."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from app.domain.spec.defaults import completed
from app.domain.spec.hyperparameters.parsing import parse
from app.domain.spec.hyperparameters.schedules import COMPARABLE, Schedule
from app.domain.spec.model import JobDocument
from app.domain.sweeps.trunks import first_difference
from tests.trainers.in_process import Outcome, plan_of, runs
from tests.trainers.test_schedules import STEPS, rates

# With 8 steps in an epoch, and dropout: random numbers matter.
DECAY = {"lr_scheduler_type": "warmup_stable_decay", "lr_decay_ratio": "0.3", "warmup_steps": "2"}
CONSTANT = {"lr_scheduler_type": "constant_with_warmup", "warmup_steps": "3"}


@dataclass(frozen=True)
class Case:
    """Two trainings that begin alike; the second one begins with the first one's checkpoint at the branch."""

    first: dict[str, str]
    second: dict[str, str]
    branch: int
    training_type: str = "SFT"
    evaluation: dict[str, Any] = field(default_factory=lambda: {"strategy": "epoch"})


CASES = {
    # The decay of the shorter one begins at index 7, with the whole rate.
    "longer": Case({**DECAY, "max_steps": "16"}, {**DECAY, "max_steps": "10"}, 8),
    "shorter": Case(
        {**DECAY, "max_steps": "10"}, {**DECAY, "max_steps": "16"}, 8, evaluation={"strategy": "steps", "steps": 3}
    ),
    "decay": Case(
        {**DECAY, "max_steps": "12", "lr_decay_type": "1-sqrt"},
        {**DECAY, "max_steps": "12", "lr_decay_type": "linear", "logging_steps": "4"},
        9,
        "LORA",
    ),
    "continued": Case(
        {**CONSTANT, "max_steps": "6"}, {**CONSTANT, "max_steps": "11"}, 6, evaluation={"strategy": "steps", "steps": 3}
    ),
    "evaluated at its end": Case(
        {**CONSTANT, "max_steps": "6"}, {**CONSTANT, "max_steps": "11"}, 5, evaluation={"strategy": "steps", "steps": 4}
    ),
}


def document(case: Case, hyperparameters: dict[str, str]) -> JobDocument:
    training = {
        "training_type": case.training_type,
        "framework": {"type": "HF_TRAINER"},
        "hyperparameters": hyperparameters,
        "evaluation": case.evaluation,
    }
    raw = {"training_config": training, "data_config": {"sources": [{"path": "train.jsonl"}], "validation_split": 0.1}}
    return completed(JobDocument.from_json(raw))


@pytest.fixture(scope="module")
def trained(assets: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Outcome]:
    """Of each case both trainings from the start, and the second one as a fork of the first."""
    directory, plans = tmp_path_factory.mktemp("trunks"), {}
    for name, case in CASES.items():
        for role, values in (("first", case.first), ("second", case.second), ("fork", case.second)):
            plan = plan_of(
                directory / f"{name}-{role}",
                assets,
                case.training_type,
                values,
                job_id=f"job-{name}-{role}",
                training_config={"evaluation": case.evaluation},
                output_config={"checkpoint": {"save_steps": 100, "save_at": [case.branch, case.branch + 1]}},
            )
            if role == "fork":
                start = directory / f"{name}-first" / "checkpoints" / f"step-{case.branch}"
                plan["spec"]["resume_checkpoint"] = str(start)
            plans[f"{name} {role}"] = plan
    return runs(directory, plans)


def weights_after(outcome: Outcome, step: int) -> bytes:
    (directory,) = [Path(path) for path in outcome.checkpoints if path.endswith(f"step-{step}")]
    (file,) = [
        directory / name for name in ("model.safetensors", "adapter_model.safetensors") if (directory / name).exists()
    ]
    return file.read_bytes()


@pytest.mark.long
@pytest.mark.parametrize("name", CASES)
def test_common_steps_are_told_and_end_with_the_same_weights(name: str, trained: dict[str, Outcome]) -> None:
    case = CASES[name]
    first, second = trained[f"{name} first"], trained[f"{name} second"]

    assert first_difference(document(case, case.first), document(case, case.second)) == case.branch
    assert (first.error, second.error) == (None, None)
    assert weights_after(first, case.branch) == weights_after(second, case.branch)


@pytest.mark.long
@pytest.mark.parametrize("name", CASES)
def test_fork_ends_with_the_weights_of_a_training_from_the_start(name: str, trained: dict[str, Outcome]) -> None:
    alone, fork = trained[f"{name} second"], trained[f"{name} fork"]

    assert fork.error is None
    assert min(fork.series("loss")) > CASES[name].branch  # it trained the rest only
    assert fork.weights() == alone.weights() != trained[f"{name} first"].weights()


@pytest.mark.long
def test_branch_is_the_last_step_in_common(trained: dict[str, Outcome]) -> None:
    """One step further the decays differ."""
    first, second = trained["longer first"], trained["longer second"]

    assert weights_after(first, 9) != weights_after(second, 9)


@pytest.mark.parametrize("name", COMPARABLE)
@pytest.mark.parametrize("decay", ["linear", "cosine", "1-sqrt"])
@pytest.mark.parametrize(("ratio", "warmup", "lowest"), [("0.25", "0", "0.1"), ("0.9", "7", "0.3"), ("1.0", "3", "0")])
def test_factors_are_those_of_transformers(name: str, decay: str, ratio: str, warmup: str, lowest: str) -> None:
    given = {"warmup_steps": warmup} if name != "constant" else {}
    if name == "warmup_stable_decay":
        given |= {"lr_decay_type": decay, "lr_decay_ratio": ratio, "min_lr_rate": lowest}
    values = parse("HF_TRAINER", "SFT", {"lr_scheduler_type": name, "max_steps": str(STEPS), **given})
    schedule = Schedule.of(values)

    assert schedule is not None
    assert [schedule.factor(step) for step in range(STEPS + 1)] == rates(name, **given)
