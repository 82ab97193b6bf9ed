"""Trainings that stop, or save, while a rollout that they ask hangs."""

import threading
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.trainers.in_process import Outcome, plan_of, runs
from tests.trainers.rollout_processes import ENGINE, HANGING, PAUSES, merged, serving

pytestmark = [pytest.mark.timeout(300), pytest.mark.long]  # the first one waits for all the runs


@pytest.fixture(scope="module")
def outcomes_of_hangs(assets, tmp_path_factory) -> dict[str, Outcome]:
    """Of trainings whose rollout hangs after the second step, and what they are without it."""
    directory = tmp_path_factory.mktemp("rollouts-that-hang")
    hanging = directory / "hanging.py"
    hanging.write_text(HANGING)
    # The third step is the first one of an epoch.
    short = {"data_config": {"sources": [{"split": "train[:4]"}, {"split": "validation[50:55]"}]}}
    never: dict[str, Any] = {"training_config": {"evaluation": {"strategy": "no"}}, **short}
    after: dict[str, Any] = {"training_config": {"evaluation": {"strategy": "steps", "steps": 2}}, **short}

    def plan(name: str, more: dict[str, Any], *changes: dict[str, str]) -> dict[str, Any]:
        return plan_of(directory / name, assets, "RLHF", merged(ENGINE, *changes), **more)

    hangs = {"reward": str(hanging)}
    # It ends within an epoch.
    two = {"max_steps": "2"}
    longer = {"data_config": {"sources": [{"split": "train[:13]"}, {"split": "validation[50:55]"}]}}
    # After the last step, when the loop of the library has ended.
    in_evaluation = {"pause_in_evaluation": True}
    plans = {
        "steps": plan("steps", never),
        "paused": plan("paused", never, hangs, {"logging_steps": "3"}) | {"stop_at": 2, **PAUSES},
        "resumed": plan("resumed", never) | {"resume_from": "paused"},
        "saved": plan("saved", never, hangs) | {"commands_before_completions": {3: {"type": "checkpoint"}}},
        "evaluations": plan("evaluations", after),
        "paused in evaluation": plan("paused-in-evaluation", after, hangs) | {"stop_at": 2, "pause_within": 2},
        "evaluated": plan("evaluated", after) | {"resume_from": "paused in evaluation"},
        "cancelled": plan("cancelled", never, hangs) | {"commands_before_completions": {3: {"type": "cancel"}}},
        "two steps": plan("two-steps", never | longer, two),
        "unstored": plan("unstored", after | longer, hangs, two) | {"pause_within": 2, "unstored": [2]},
        "paused in the last": plan("paused-in-the-last", never | longer, hangs, two) | {"stop_at": 2, **in_evaluation},
        "evaluated last": plan("evaluated-last", never | longer, two) | {"resume_from": "paused in the last"},
        "unstored in the last": plan("unstored-in-the-last", never | longer, hangs, two)
        | {"unstored": [2], **in_evaluation},
    }
    with ExitStack() as stack:
        for name in (name for name, each in plans.items() if each["spec"]["hyperparameters"]["reward"] == str(hanging)):
            rollouts = stack.enter_context(serving(directory / f"of {name}", plans[name], 1))
            rollouts.hang(plans[name])
            if name in ("saved", "unstored", "unstored in the last"):
                checkpoint = Path(plans[name]["spec"]["run_dir"]) / "checkpoints" / "step-2"
                threading.Thread(target=rollouts.continue_after, args=[checkpoint]).start()
        return runs(directory, plans)


def test_pause_does_not_wait_for_a_rollout_that_hangs(outcomes_of_hangs):
    """Nothing of the step that waits is trained, and the random numbers are those from before its epoch."""
    paused = outcomes_of_hangs["paused"]

    assert (paused.error, paused.result["stopped"], paused.result["step"]) == (None, "pause", 2)
    assert paused.seconds < outcomes_of_hangs["steps"].seconds + 10
    for name in ("learning_rate", "grad_norm"):  # logged for the checkpoint alone
        assert paused.series(name) == {2: outcomes_of_hangs["steps"].series(name)[2]}
    assert outcomes_of_hangs["resumed"].weights() == outcomes_of_hangs["steps"].weights()
    assert outcomes_of_hangs["resumed"].series("reward").items() <= outcomes_of_hangs["steps"].series("reward").items()


def test_evaluation_that_a_pause_breaks_off_is_made_up_for(outcomes_of_hangs):
    paused, evaluated = outcomes_of_hangs["paused in evaluation"], outcomes_of_hangs["evaluated"]

    assert (paused.error, paused.result["stopped"], paused.result["step"]) == (None, "pause", 2)
    assert paused.series("eval_reward") == {}
    assert evaluated.series("eval_reward") == outcomes_of_hangs["evaluations"].series("eval_reward")
    assert list(evaluated.series("eval_reward")) == [2, 4]
    assert evaluated.reached_when_saved.keys() >= {"2"}, "the evaluation may be the best one"
    assert evaluated.weights() == outcomes_of_hangs["evaluations"].weights()


@pytest.mark.parametrize("name", ["unstored", "unstored in the last"])
def test_training_ends_with_its_last_evaluation_although_a_pause_of_that_is_given_up(outcomes_of_hangs, name):
    """No step is made after max_steps, and no part of an evaluation counts twice."""
    found, undisturbed = outcomes_of_hangs[name], outcomes_of_hangs["two steps"]

    assert (found.error, found.result["stopped"], found.result["step"]) == (None, None, 2)
    assert found.pauses_failed == ["CheckpointNotSaved: the storage is away"]
    assert found.series("eval_reward") == undisturbed.series("eval_reward")
    assert list(found.series("eval_reward")) == [2]
    assert found.weights() == undisturbed.weights()


def test_last_evaluation_that_a_pause_breaks_off_is_made_up_for(outcomes_of_hangs):
    paused, evaluated = outcomes_of_hangs["paused in the last"], outcomes_of_hangs["evaluated last"]

    assert (paused.error, paused.result["stopped"], paused.result["step"]) == (None, "pause", 2)
    assert paused.series("eval_reward") == {}
    assert (evaluated.error, evaluated.result["step"]) == (None, 2)
    assert evaluated.series("eval_reward") == outcomes_of_hangs["two steps"].series("eval_reward")
    assert evaluated.weights() == outcomes_of_hangs["two steps"].weights()


def test_checkpoint_is_saved_while_a_rollout_hangs_and_the_training_goes_on(outcomes_of_hangs):
    saved = outcomes_of_hangs["saved"]

    assert saved.error is None
    assert saved.reached_when_saved["2"] == 2
    assert saved.weights() == outcomes_of_hangs["steps"].weights()


def test_cancelled_training_does_not_wait_for_a_rollout_that_hangs(outcomes_of_hangs):
    cancelled = outcomes_of_hangs["cancelled"]

    assert (cancelled.error, cancelled.result["stopped"], cancelled.checkpoints) == (None, "cancel", [])
