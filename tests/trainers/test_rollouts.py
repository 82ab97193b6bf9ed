"""Whole trainings whose completions come from the engine: in their own process, or from rollouts in others."""

import shutil
import threading
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from safetensors.numpy import load_file, save_file

from tests.trainers.in_process import Outcome, plan_of, runs
from tests.trainers.rollout_processes import COMMON, ENGINE, HANGING, PAUSES, STEPS, merged, serving

pytestmark = [pytest.mark.timeout(300), pytest.mark.long]  # the first one waits for all the runs

# The reward of COMMON, and a letter for each call.
JUDGE = """
import re
def reward(prompts, completions, **columns):
    with open(__file__ + ".steps", "a") as file:
        file.write("x")
    return [float(re.search("[aeiou]{2}", text) is not None) for text in completions]
"""
# A number that says which completion it is.
NUMBERS = """
def reward(prompts, completions, **columns):
    return [float(sum(number * ord(letter) for number, letter in enumerate(text)) % 997) for text in completions]
"""
ADAPTER = {"use_lora": "true", "algorithm": "rloo", "beta": "0.1"}
# The norm of all gradients is a sum over the parts of a divided model, in another order.
DIVIDED = {**COMMON, **ENGINE, "beta": "0.1", "max_grad_norm": "0"}


def lively(model: Path, directory: Path) -> str:
    """A copy whose likeliest token is not always the same one."""
    shutil.copytree(model, directory)
    file = directory / "model.safetensors"
    weights = {name: tensor * 3 for name, tensor in load_file(file).items()}
    save_file(weights, file, metadata={"format": "pt"})
    return str(directory)


def largest_difference(one: Outcome, other: Outcome) -> float:
    """Of two weights at the same place, at a learning rate of 5e-3."""
    (first,), (second,) = (each.result["weight_files"] for each in (one, other))
    weights, others = load_file(one.output / first), load_file(other.output / second)
    assert weights.keys() == others.keys()
    return max(float(abs(weights[name] - others[name]).max()) for name in weights)


@pytest.fixture(scope="module")
def outcomes(assets, tmp_path_factory) -> dict[str, Outcome]:
    """All runs of this file, in one process."""
    directory = tmp_path_factory.mktemp("rollouts")
    judge = directory / "judge.py"
    judge.write_text(JUDGE)
    numbers = directory / "numbers.py"
    numbers.write_text(NUMBERS)
    greedy = {"top_k": "1", "algorithm": "rloo", "reward": str(numbers)}

    def plan(name: str, *changes: dict[str, str], **more: Any) -> dict[str, Any]:
        return plan_of(directory / name, assets, "RLHF", merged(*changes), **more)

    plans = {
        "generate greedy": plan("generate-greedy", greedy, model_path=lively(assets / "model", directory / "lively")),
        "engine greedy": plan("engine-greedy", greedy, ENGINE, model_path=str(directory / "lively")),
        "engine": plan("engine", ENGINE),
        "first part": {**plan("first-part", ENGINE), "stop_at": 2},
        "resumed": {**plan("resumed", ENGINE), "resume_from": "first part"},
        "one": plan("one", ENGINE),
        "two": plan("two", ENGINE, {"reward": str(judge)}),
        "adapter": plan("adapter", ENGINE, ADAPTER),
        "adapter by one": plan("adapter-by-one", ENGINE, ADAPTER),
    }
    with ExitStack() as stack:
        for name, instances in {"one": 1, "two": 2, "adapter by one": 1}.items():
            rollouts = stack.enter_context(serving(directory / f"of {name}", plans[name], instances))
            if name == "two":
                killer = threading.Thread(target=rollouts.kill_after, args=[directory / "judge.py.steps"])
                killer.start()
        found = runs(directory, plans)
        killer.join()
    return found


@pytest.fixture(scope="module")
def outcomes_of_two_ranks(assets, tmp_path_factory) -> dict[str, Outcome]:
    directory = tmp_path_factory.mktemp("rollouts-of-two-ranks")
    plans = {
        name: plan_of(directory / name, assets, "RLHF", merged(ENGINE), world_size=2) for name in ("engine", "rollouts")
    }
    with serving(directory / "of rollouts", plans["rollouts"], 2):
        return runs(directory, plans, world_size=2)


@pytest.fixture(scope="module")
def outcomes_of_a_divided_model(assets, tmp_path_factory) -> dict[str, Outcome]:
    """Of two ranks: each has a part of the model, or all of it and makes its completions itself."""
    directory = tmp_path_factory.mktemp("rollouts-of-a-divided-model")
    hanging = directory / "hanging.py"
    hanging.write_text(HANGING)

    def plan(name: str, framework: str, **more: str) -> dict[str, Any]:
        values = {**DIVIDED, **more}
        return plan_of(directory / name, assets, "RLHF", values, world_size=2, framework=framework)

    plans = {
        "whole": plan("whole", "HF_TRAINER"),
        "whole adapter": plan("whole-adapter", "HF_TRAINER", **ADAPTER),
        "divided": plan("divided", "FSDP"),
        "recomputed": plan("recomputed", "FSDP", gradient_checkpointing="true"),
        "divided adapter": plan("divided-adapter", "FSDP", **ADAPTER),
        "whole paused": {**plan("whole-paused", "HF_TRAINER", reward=str(hanging)), "stop_at": 2, **PAUSES},
        "whole resumed": {**plan("whole-resumed", "HF_TRAINER"), "resume_from": "whole paused"},
        "divided paused": {**plan("divided-paused", "FSDP", reward=str(hanging)), "stop_at": 2, **PAUSES},
        "divided resumed": {**plan("divided-resumed", "FSDP"), "resume_from": "divided paused"},
    }
    alone = ("whole", "whole adapter", "whole resumed")
    with ExitStack() as stack:
        for name in plans.keys() - {*alone}:
            rollouts = stack.enter_context(serving(directory / f"of {name}", plans[name], 2))
            rollouts.hang(plans[name])
        return runs(directory, plans, world_size=2)


@pytest.fixture(scope="module")
def outcomes_of_zero(assets, tmp_path_factory) -> dict[str, Outcome]:
    """As `outcomes_of_a_divided_model`, by DeepSpeed."""
    directory = tmp_path_factory.mktemp("rollouts-of-zero")

    def plan(name: str, stage: str, **more: str) -> dict[str, Any]:
        values = {**DIVIDED, **more}
        found = plan_of(directory / name, assets, "RLHF", values, world_size=2, framework="DEEPSPEED")
        found["spec"]["training_config"]["framework"] = {"type": "DEEPSPEED", "config": {"zero_stage": stage}}
        return found

    hanging = directory / "hanging.py"
    hanging.write_text(HANGING)
    plans = {
        "paused": {**plan("paused", "1", reward=str(hanging)), "stop_at": 2, **PAUSES},
        "stage 1": {**plan("stage-1", "1"), "resume_from": "paused"},
        "adapter in stage 3": plan("adapter-3", "3", **ADAPTER),
    }
    with ExitStack() as stack:
        for name, plan_ in plans.items():
            rollouts = stack.enter_context(serving(directory / f"of {name}", plan_, 1))
            rollouts.hang(plan_)
        return runs(directory, plans, world_size=2)


def test_every_run_ends_well(outcomes):
    assert {name: outcome.error for name, outcome in outcomes.items()} == dict.fromkeys(outcomes)


def test_greedy_completions_are_those_of_generate(outcomes):
    """All completions of a prompt are the same one, so nothing is learned from them."""
    for name in ("reward", "eval_reward", "completion_length"):
        assert outcomes["engine greedy"].series(name) == outcomes["generate greedy"].series(name)
    assert len(set(outcomes["engine greedy"].series("reward").values())) > 1


def test_completions_are_sampled(outcomes):
    assert len(set(outcomes["engine"].series("reward").values())) > 1


@pytest.mark.parametrize(("name", "alone"), [("one", "engine"), ("two", "engine"), ("adapter by one", "adapter")])
def test_rollouts_change_no_weight(outcomes, name, alone):
    """Also when one of them was killed, and started again."""
    assert outcomes[name].weights() == outcomes[alone].weights()
    assert outcomes[name].series("eval_reward") == outcomes[alone].series("eval_reward")


def test_resumed_training_makes_the_same_completions(outcomes):
    assert outcomes["first part"].result["stopped"] == "pause"
    assert outcomes["resumed"].weights() == outcomes["engine"].weights()


def test_what_completions_took_is_measured(outcomes):
    assert set(outcomes["engine"].values) & {"weights_seconds", "weights_bytes"} == set()
    assert list(outcomes["engine"].series("generation_seconds")) == list(range(1, STEPS + 1))
    sent = outcomes["adapter by one"].series("weights_bytes")
    assert 0 < sent[1] < outcomes["one"].series("weights_bytes")[1]
    assert "generation_seconds" not in outcomes["generate greedy"].values


def test_ranks_share_rollouts(outcomes_of_two_ranks):
    """One of them hands over the weights, for both."""
    assert outcomes_of_two_ranks["rollouts"].weights() == outcomes_of_two_ranks["engine"].weights()


@pytest.mark.parametrize("name", ["divided", "recomputed"])
def test_weights_that_ranks_have_in_parts_are_handed_over_whole(outcomes_of_a_divided_model, name):
    found = outcomes_of_a_divided_model

    assert found[name].error is None
    assert found[name].series("reward") == found["whole"].series("reward")
    assert found[name].series("eval_reward") == found["whole"].series("eval_reward")
    assert found[name].weights() == found["whole"].weights()
    assert len(set(found[name].series("reward").values())) > 1


def test_adapter_on_a_divided_model_is_handed_over(outcomes_of_a_divided_model):
    found = outcomes_of_a_divided_model

    assert found["divided adapter"].error is None
    assert found["divided adapter"].series("reward") == found["whole adapter"].series("reward")
    assert found["divided adapter"].weights() == found["whole adapter"].weights()


@pytest.mark.parametrize("name", ["whole", "divided"])
def test_all_ranks_end_a_step_that_waits_for_a_rollout(outcomes_of_a_divided_model, name):
    found = outcomes_of_a_divided_model

    assert found[f"{name} paused"].result["stopped"] == "pause"
    assert found[f"{name} resumed"].weights() == found["whole"].weights()


@pytest.mark.parametrize("name", ["stage 1", "adapter in stage 3"])
def test_deepspeed_hands_weights_over(outcomes_of_zero, outcomes_of_a_divided_model, name):
    """That in stage 1 was paused while a rollout hung. From stage 2 on gradients are added up in another order."""
    found = outcomes_of_zero[name]
    whole = outcomes_of_a_divided_model["whole adapter" if "adapter" in name else "whole"]

    assert found.error is None
    assert found.series("reward").items() <= whole.series("reward").items()
    assert found.series("eval_reward") == whole.series("eval_reward")
    assert largest_difference(found, whole) <= (0 if name == "stage 1" else 1e-4)
