"""A job that resumes from another job's checkpoint uses its own settings, on as many devices as it has."""

from typing import Any

import pytest

from tests.trainers.in_process import plan_of, runs

RATE = 1e-3

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def children(assets, tmp_path_factory):
    """Jobs on one rank from the checkpoint that two ranks saved after half an epoch."""
    directory = tmp_path_factory.mktemp("taken-over")
    data = {"batch_size": 2, "validation_split": 0.0}
    alike: dict[str, Any] = {"data_config": data, "training_config": {}}
    parent = plan_of(
        directory / "parent", assets, "SFT", {"num_train_epochs": "1", "weight_decay": "0.5"}, world_size=2, **alike
    )
    runs(directory, {"parent": parent | {"stop_at": 4}}, world_size=2)
    start = directory / "parent" / "checkpoints" / "step-4"
    further = {"num_train_epochs": "2", "learning_rate": str(RATE), "logging_steps": "2"}
    settings = {"further": further, "as it is": {"max_steps": "4", "lr_scheduler_type": "constant"}}
    plans = {
        name: plan_of(
            directory / name,
            assets,
            "SFT",
            values,
            job_id="job-2",
            output_config={"checkpoint": {"save_steps": 12}},
            resume_checkpoint=str(start),
            **alike,
        )
        for name, values in settings.items()
    }
    return start, runs(directory, plans)


@pytest.fixture
def child(children):
    """Trained for two epochs in all."""
    return children[1]["further"]


def test_epochs_count_whatever_the_number_of_devices(child):
    """A step had 8 of 60 records, and now has 4: half an epoch was 4 steps of 8, and is 8 of 15."""
    assert child.error is None
    assert child.result["step"] == 30
    assert min(child.series("loss")) == 10


def test_rate_is_the_one_of_this_job(child):
    rates = child.series("learning_rate")

    assert rates == {step: pytest.approx(RATE * (30 - step + 1) / 30) for step in range(10, 31, 2)}


def test_cadence_is_the_one_of_this_job(child):
    assert [path.rpartition("-")[2] for path in child.checkpoints] == ["12", "24", "30"]


def test_checkpoint_is_exported_as_it_is_by_a_job_of_no_more_steps(children):
    start, outcomes = children
    child = outcomes["as it is"]

    assert (child.error, child.result["step"], child.series("loss")) == (None, 4, {})
    assert (child.output / "model.safetensors").read_bytes() == (start / "model.safetensors").read_bytes()
