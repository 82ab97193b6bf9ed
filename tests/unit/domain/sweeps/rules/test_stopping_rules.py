"""Which sweeps may halt their trials, and what is done where the platform can't stop a job at a step."""

from typing import Any

import pytest

from app.domain.sweeps.rules.early_stopping import without_impossible_halts
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


def test_a_script_is_not_halted_and_a_warning_says_so() -> None:
    rule = {"name": "asha", "min": 3, "max": 27, "losers": "pause"}
    spec, warnings = without_impossible_halts(SweepSpec.from_json(sweep(job=SCRIPT, early_stopping=rule)))

    assert spec.early_stopping.losers == "stop"
    assert warnings[0].startswith("early_stopping.losers: stop is used, because")


def test_what_can_halt_stays() -> None:
    spec = SweepSpec.from_json(sweep(early_stopping=EPOCHS))

    assert without_impossible_halts(spec) == (spec, [])
