"""Saving at the end of every so many epochs."""

import pytest

from tests.trainers.in_process import plan_of, runs

pytestmark = pytest.mark.long

EVERY_SECOND = {"checkpoint": {"save_strategy": "epoch", "save_epochs": 2}}
TWO_STEPS = {"sources": [{"split": "train[:16]"}, {"split": "validation"}]}


@pytest.fixture(scope="module")
def outcomes(assets, tmp_path_factory):
    """Five epochs of two steps; ended early after the third; paused after the first."""
    directory = tmp_path_factory.mktemp("epochs")
    early = {"max_steps": "10", "early_stopping_patience": "2", "early_stopping_threshold": "100"}
    values = {"whole": {"max_steps": "10"}, "early": early, "paused": {"max_steps": "10"}}
    plans = {
        name: plan_of(directory / name, assets, "SFT", given, data_config=TWO_STEPS, output_config=EVERY_SECOND)
        for name, given in values.items()
    }
    plans["paused"]["commands"] = {2: {"type": "pause", "save_checkpoint": True, "number": 1}}
    return runs(directory, plans)


@pytest.mark.parametrize(
    ("name", "steps"),
    [
        pytest.param("whole", ["4", "8", "10"], id="every second epoch, and the last"),
        pytest.param("early", ["4", "6"], id="the one that it ends with"),
        pytest.param("paused", ["2"], id="whenever it is asked to stop"),
    ],
)
def test_checkpoints_are_saved_at_the_configured_epochs(outcomes, name, steps):
    assert outcomes[name].error is None
    assert [path.rpartition("-")[2] for path in outcomes[name].checkpoints] == steps
