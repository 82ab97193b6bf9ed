"""Which sweeps may halt their trials."""

from typing import Any

import pytest

from app.domain.sweeps.rules.document import check
from app.domain.sweeps.spec import SweepSpec
from tests.unit.domain.sweeps.sweep_documents import JOB, SCRIPT, refused, sweep, with_training

EPOCHS = {"name": "asha", "unit": "epochs", "min": 1, "max": 3, "losers": "pause"}


@pytest.mark.parametrize(
    ("changes", "field", "way_out"),
    [
        (
            {"job": with_training(JOB, halt_at={"unit": "steps", "at": [3]})},
            "job.training_config.halt_at",
            "leave it out, and use early_stopping with losers: pause",
        ),
        (
            {
                "job": {**JOB, "data_config": {**JOB["data_config"], "streaming": True}},
                "objective": {"metric": "loss"},
                "early_stopping": EPOCHS,
            },
            "early_stopping.unit",
            "use steps, or set losers to stop",
        ),
        ({"early_stopping": {"name": "none", "losers": "pause"}}, "early_stopping.losers", "name a rule such as asha"),
        (
            {
                "job": {**JOB, "output_config": {"checkpoint": {"resume_from_best": True}}},
                "early_stopping": {"name": "asha", "min": 100, "max": 900, "losers": "pause"},
            },
            "job.output_config.checkpoint.resume_from_best",
            "leave it out",
        ),
    ],
)
def test_halts_that_are_refused(changes: dict[str, Any], field: str, way_out: str) -> None:
    error = refused(**changes)

    assert (error.field, way_out in error.message) == (field, True)


SCRIPT_HALTS: dict[str, Any] = {
    "job": SCRIPT,
    "parameters": {"lr": 1, "optim": "a", "data_config.seed": {"values": [1, 2]}},
    "require": [],
    "early_stopping": {"name": "asha", "min": 3, "max": 27, "losers": "pause"},
}


def with_config(**options: str) -> dict[str, Any]:
    return with_training(SCRIPT, framework={**SCRIPT["training_config"]["framework"], "config": options})


def test_a_script_may_be_halted() -> None:
    check(SweepSpec.from_json(sweep(**SCRIPT_HALTS)))


@pytest.mark.parametrize(
    ("changes", "field", "way_out"),
    [
        ({"early_stopping": EPOCHS}, "early_stopping.unit", "use steps, or set losers to stop"),
        (
            {"job": with_config(checkpoint_glob="out/*.pt")},
            "job.training_config.framework.config.checkpoint_glob",
            "save by the hooks and leave this out, or set early_stopping.losers to stop",
        ),
        (
            {"job": with_config(**{"metric.eval_loss": "loss=([0-9.]+)"})},
            "job.training_config.framework.config.metric.eval_loss",
            "or set early_stopping.losers to stop",
        ),
    ],
)
def test_scripts_that_can_not_halt_are_refused(changes: dict[str, Any], field: str, way_out: str) -> None:
    error = refused(**{**SCRIPT_HALTS, **changes})

    assert (error.field, way_out in error.message) == (field, True)
