"""PPO: rewards rise, the critic learns, any step is gone on from, and what comes out has no head."""

import json
import random
from typing import Any

import pytest
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

from app.domain.errors import BadSpec
from app.domain.spec.metrics import OF_PPO, REINFORCEMENT
from tests.builders.submitted import changed, spec_of
from tests.trainers.in_process import Outcome, plan_of, runs

STEPS = 10  # learns three times from each of three batches of completions, and once from another
LEARNS = 40
FRAMEWORK = "HF_TRAINER"
PPO = {"algorithm": "ppo", "num_generations": "4", "max_completion_length": "8", "num_ppo_epochs": "3"}
# What each method runs with: training type, hyperparameters.
METHODS: dict[str, tuple[str, dict[str, str]]] = {
    "whole": ("RLHF", {**PPO, "disable_dropout": "false", "load_best_model_at_end": "true"}),
    "adapter": ("RLHF", {**PPO, "use_lora": "true", "lora_dropout": "0.1", "num_mini_batches": "2"}),
}
SERIES = ("loss", "learning_rate", "grad_norm", "reward", "kl", "entropy", "eval_loss", *OF_PPO)


@pytest.fixture(scope="module")
def outcomes(assets, tmp_path_factory) -> dict[str, Outcome]:
    """All runs of this file, in one process: for each method a whole one, and a chain of parts."""
    seed = random.randrange(1_000_000)
    draw = random.Random(seed)
    directory = tmp_path_factory.mktemp("ppo")

    def plan(name: str, values: dict[str, str], **changes: Any) -> dict[str, Any]:
        return plan_of(directory / name, assets, "RLHF", {**PPO, "reward": "regex:[aeiou]{2}", **values}, **changes)

    plans: dict[str, Any] = {}
    for method, (_, values) in METHODS.items():
        before, given = None, {"max_steps": str(STEPS), "warmup_steps": "2", **values}
        stops = sorted(draw.sample(range(1, STEPS), 3))
        print(f"seed {seed}: {method} stops at {stops}")  # noqa: T201  (shown when it fails)
        for name in ("whole", *stops, "end"):
            run = f"{method}:{name}"
            plans[run] = plan(run, given)
            if name != "whole":
                plans[run] |= {"stop_at": name if name in stops else None, "resume_from": before}
                before = run
    learns = {"max_steps": str(LEARNS), "beta": "0", "learning_rate": "3e-3", "vf_coef": "0.5"}
    data = {"batch_size": 32, "gradient_accumulation_steps": 1}
    plans["learns"] = plan("learns", learns, data_config=data, training_config={"evaluation": {"strategy": "no"}})
    plans["taken over"] = plan("taken-over", {"max_steps": str(STEPS)}, job_id="another") | {
        "resume_from": next(name for name in plans if name.startswith("whole:") and name != "whole:whole")
    }
    return runs(directory, plans)


@pytest.mark.long
@pytest.mark.parametrize("method", METHODS)
def test_stopped_run_goes_on_bit_by_bit(outcomes, method):
    whole, *parts = (outcome for name, outcome in outcomes.items() if name.startswith(f"{method}:"))

    assert [part.result["stopped"] for part in parts] == ["pause"] * (len(parts) - 1) + [None]
    for name in SERIES:
        assert {step: value for part in parts for step, value in part.series(name).items()} == whole.series(name), name
    assert parts[-1].weights() == whole.weights()
    assert parts[-1].result["tokens"] == whole.result["tokens"] > 0


@pytest.mark.long
def test_completions_are_trained_on_several_times_and_then_made_anew(outcomes):
    # Rewards are reported at the step that makes the completions.
    assert list(outcomes["whole:whole"].series("reward")) == [1, 4, 7, 10]
    assert list(outcomes["adapter:whole"].series("reward")) == [1, 7]


@pytest.mark.long
def test_completions_are_made_and_scored_without_dropout_that_the_passes_over_them_have(outcomes):
    # The model is its own reference before the first step, but for what dropout would leave out of one of them.
    assert outcomes["whole:whole"].series("kl")[1] == 0
    assert outcomes["whole:whole"].series("policy_loss")[1] != 0


@pytest.mark.long
def test_everything_that_is_promised_is_measured(outcomes):
    assert {"entropy", "eval_reward", *OF_PPO, *REINFORCEMENT} <= outcomes["whole:whole"].values.keys()


@pytest.mark.long
def test_what_comes_out_has_no_head_of_the_critic(outcomes):
    whole, adapter = (outcomes[f"{method}:whole"].output for method in METHODS)
    names = {name for output in (whole, adapter) for path in output.glob("*.safetensors") for name in load_file(path)}

    assert names
    assert not [name for name in names if "value_head" in name]
    assert AutoModelForCausalLM.from_pretrained(whole)
    assert not json.loads((adapter / "adapter_config.json").read_text())["modules_to_save"]


@pytest.mark.long
def test_the_reward_rises_and_the_critic_learns_to_expect_it(outcomes):
    rewards, errors = (list(outcomes["learns"].series(name).values()) for name in ("reward", "value_loss"))

    assert sum(rewards[-3:]) / 3 > sum(rewards[:3]) / 3 + 0.02
    assert sum(errors[-5:]) < sum(errors[:5])


@pytest.mark.long
def test_another_job_goes_on_with_completions_of_its_own(outcomes):
    found = outcomes["taken over"]

    assert found.result["step"] == STEPS
    assert min(found.series("reward")) == min(found.series("loss"))


def test_several_devices_are_refused_with_what_to_do():
    document = changed(
        ("training_config.training_type", "RLHF"),
        ("training_config.hyperparameters", {"algorithm": "ppo", "reward": "length:9"}),
        ("resource_config.gpu_count", 2),
    )

    with pytest.raises(BadSpec, match="gpu_count 1") as raised:
        spec_of(document)
    assert raised.value.field == "training_config.hyperparameters.algorithm"
