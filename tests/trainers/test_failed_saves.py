"""A checkpoint that can't be saved costs nothing else: a pause is given up, the training continues unchanged."""

from pathlib import Path
from typing import Any

import pytest

from tests.trainers.in_process import plan_of, runs
from tests.trainers.supervision import at_step
from tests.trainers.test_sft import PAUSE, train, weights_hash

pytestmark = pytest.mark.long

STEPS = 10


def pause(number, **changes):
    return {"type": "pause", "save_checkpoint": True, "number": number, **changes}


@pytest.fixture(scope="module", params=[1, 2], ids=["1-rank", "2-ranks"])
def outcomes(request, assets, tmp_path_factory):
    """Undisturbed; paused three times, of which only the third can be saved; forced; with pauses at other moments.

    An epoch has 8 steps, and an evaluation at its end: a pause there is saved after it.
    """
    directory = tmp_path_factory.mktemp("failed")
    given_up: dict[str, Any] = {
        "whole": {},
        "given up": {"commands": {2: pause(1), 5: pause(2), 8: pause(3)}, "unwritten": [2, 8], "unstored": [5]},
        "at last": {"commands": {3: pause(1), 5: pause(2)}, "unwritten": [3], "stop_at": None},
        "at the end": {"commands": {STEPS: pause(1)}, "unstored": [STEPS]},
        "forced": {"commands": {4: pause(1, force=True)}, "unwritten": [4]},
        "requeued": {"commands": {4: {"type": "requeue"}}, "unwritten": [4]},
    }
    values = {"max_steps": str(STEPS), "warmup_steps": "3"}
    plans = {
        name: plan_of(directory / name, assets, "SFT", values, world_size=request.param) | plan
        for name, plan in given_up.items()
    }
    return runs(directory, plans, world_size=request.param)


@pytest.mark.timeout(300)  # the first one waits for all the runs
@pytest.mark.parametrize(
    ("name", "steps", "reason"),
    [("given up", [2, 5, 8], "No space left on device"), ("at the end", [STEPS], "the storage is away")],
)
def test_pause_that_can_not_be_saved_is_given_up_and_changes_nothing(outcomes, name, steps, reason):
    whole, found = outcomes["whole"], outcomes[name]

    assert (found.error, found.result["stopped"], found.result["step"]) == (None, None, STEPS)
    assert len(found.pauses_failed) == len(steps)
    assert reason in found.pauses_failed[0]
    assert found.series("loss") == whole.series("loss")
    assert found.series("eval_loss") == whole.series("eval_loss")
    assert found.weights() == whole.weights()


def test_pause_after_a_failed_one_is_followed(outcomes):
    found = outcomes["at last"]

    assert len(found.pauses_failed) == 1
    assert (found.result["stopped"], found.result["step"]) == ("pause", 5)
    assert [Path(path).name for path in found.checkpoints] == ["step-5"]


@pytest.mark.parametrize(("name", "stopped"), [("forced", "pause"), ("requeued", "requeue")])
def test_stop_that_must_be_is_followed_without_its_checkpoint(outcomes, name, stopped):
    found = outcomes[name]

    assert (found.error, found.result["stopped"], found.result["step"]) == (None, stopped, 4)
    assert found.checkpoints == []
    assert found.pauses_failed == []
    (note,) = found.notes
    assert note["reason"] == "CHECKPOINT_FAILED"
    assert "No space left on device" in note["message"]


def test_full_disk_under_a_periodic_checkpoint_ends_the_run_soon(assets, tmp_path):
    output = {"checkpoint": {"save_steps": 3}}
    full = plan_of(tmp_path / "full", assets, "SFT", {"max_steps": "200"}, output_config=output)
    plans = {"full": full | {"unwritten": [6]}}

    found = runs(tmp_path, plans)["full"]

    assert (found.error or "").startswith("DISK_FULL")
    assert max(found.series("loss")) < 200
    assert [Path(path).name for path in found.checkpoints] == ["step-3"]
    assert not list((tmp_path / "full" / "work").rglob("checkpoint-6"))


def test_supervisor_hears_why_a_pause_failed(tmp_path, assets):
    """By the channel, with a supervisor that can't store what it is offered."""
    values = {"max_steps": "60"}
    train(tmp_path / "whole", assets, hyperparameters=values)
    ended = train(
        tmp_path / "paused", assets, when=[(at_step(4), PAUSE)], checkpoint_failure="quota", hyperparameters=values
    )

    assert [message["message"] for message in ended.of_type("pause_failed")] == ["CheckpointNotSaved: quota"]
    assert ended.exit_codes == [0]
    assert ended.result["stopped"] is None
    assert weights_hash(tmp_path / "paused") == weights_hash(tmp_path / "whole")
    assert ended.phases == ["TRAINING", "CHECKPOINTING", "TRAINING", "CHECKPOINTING", "EXPORTING"]


def test_training_goes_on_after_a_save_that_came_too_late_for_its_pause(tmp_path, assets):
    saving = (lambda message: message.get("phase") == "CHECKPOINTING", {"type": "forget", "number": 0})
    ended = train(tmp_path, assets, when=[(at_step(4), PAUSE), saving], hyperparameters={"max_steps": "60"})

    assert (ended.exit_codes, ended.result["stopped"], ended.result["step"]) == ([0], None, 60)
    assert ended.of_type("pause_failed") == []
    assert len(ended.checkpoints) > 1


def test_pause_during_the_last_checkpoint_is_given_up_too(tmp_path, assets):
    saving = [(lambda message: message.get("phase") == "CHECKPOINTING", PAUSE)]
    ended = train(tmp_path, assets, when=saving, checkpoint_failure="quota", hyperparameters={"max_steps": "3"})

    assert len(ended.of_type("pause_failed")) == 1
    assert ended.result["stopped"] is None
    assert ended.result["weight_files"] == ["model.safetensors"]
