"""RLHF: rewards rise, what is compared with what, what is measured and exported, and what is refused."""

import json
import re
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoModelForSequenceClassification, AutoTokenizer

from app.domain.spec.hyperparameters.parsing import InvalidHyperparameter, parse
from app.domain.spec.hyperparameters.rlhf import check_batch, check_lengths
from app.domain.spec.metrics import REINFORCEMENT
from tests.trainers.in_process import Outcome, plan_of, runs

pytestmark = pytest.mark.timeout(300)  # the first one waits for all the runs

STEPS = 6
LEARNS = 20
NEW_TOKENS = {"preprocess": {"tokenizer_config": {"additional_special_tokens": ["<|call|>"], "pad_token": "<|pad|>"}}}
CHAT = {"data_config": {"sources": [{"split": "train[:12]"}], "max_seq_length": 200, **NEW_TOKENS}}
UNMEASURED = {"evaluation": {"strategy": "no"}}
FEW = {"sources": [{"split": "train[:1]"}, {"split": "validation[50:55]"}]}
JUDGE = """
def reward(prompts, completions, **columns):
    assert len(prompts) == len(completions) == len(columns["completion"]) and list(columns) == ["completion"]
    return [sum(letter in "aeiou" for letter in text) / max(1, len(text)) for text in completions]
"""


@pytest.fixture(scope="module")
def outcomes(assets, tmp_path_factory) -> dict[str, Outcome]:
    """All runs of this file, in one process."""
    directory = tmp_path_factory.mktemp("rlhf")
    judge = directory / "judge.py"
    judge.write_text(JUDGE)
    scores = directory / "scores"
    AutoModelForSequenceClassification.from_pretrained(assets / "model", num_labels=1).save_pretrained(scores)
    AutoTokenizer.from_pretrained(assets / "model").save_pretrained(scores)
    common = {"max_steps": str(STEPS), "num_generations": "4", "max_completion_length": "8", "reward": str(judge)}

    def plan(name: str, hyperparameters: Any = (), **changes: Any) -> dict[str, Any]:
        return plan_of(directory / name, assets, "RLHF", {**common, **dict(hyperparameters)}, **changes)

    lower = {"learning_rate": "5e-3", "max_steps": str(LEARNS), "beta": "0", "num_generations": "8"}
    more = {"data_config": {"batch_size": 32, "gradient_accumulation_steps": 1}, "training_config": UNMEASURED}
    chat = {**CHAT, "data_paths": [str(assets / "chat.jsonl")], "training_config": {}}
    three = {"reward": "length:3", "max_steps": "20", "learning_rate": "1e-9"}
    return runs(
        directory,
        {
            "grpo": plan("grpo", lower, **more),
            "rloo": plan("rloo", {**lower, "algorithm": "rloo"}, **more),
            "chat": plan("chat", {"reward": "exact", "loss_type": "dr_grpo"}, **chat),
            "adapter": plan("adapter", {"use_lora": "true", "algorithm": "rloo", "normalize_advantages": "true"}),
            "merged": plan("merged", {"use_lora": "true", "beta": "0"}, output_config={"export_format": "merged"}),
            "judged": plan("judged", {"reward": "exact", "algorithm": "rloo"}, reward_model_path=str(scores)),
            "judged chat": plan("judged-chat", {"reward": "exact"}, reward_model_path=str(scores), **chat),
            "no judge": plan("no-judge", {"reward": "exact"}, reward_model_path=str(assets / "model")),
            "alike": plan("alike", three),
            "shared": plan("shared", {"num_generations": "3"}),
            "few": plan("few", data_config=FEW),
        },
    )


@pytest.mark.long
@pytest.mark.parametrize("name", ["grpo", "rloo"])
def test_reward_rises(outcomes, name):
    assert outcomes[name].error is None
    rewards = list(outcomes[name].series("reward").values())
    assert sum(rewards[-5:]) / 5 > sum(rewards[:5]) / 5 + 0.02
    assert "kl" not in outcomes[name].values  # with nothing to compare with


@pytest.mark.long
def test_everything_that_is_promised_is_measured(outcomes):
    outcome = outcomes["adapter"]

    assert {"entropy", "eval_reward", "eval_kl", *REINFORCEMENT} <= outcome.values.keys()
    assert list(outcome.series("reward")) == list(range(1, STEPS + 1))
    assert outcome.series("completion_length")[1] <= 8
    assert outcome.series("kl")[1] == 0.0
    assert outcome.series("kl")[STEPS] != 0.0


@pytest.mark.long
def test_conversations_are_answered_and_new_tokens_are_in_the_reference_too(outcomes):
    outcome = outcomes["chat"]

    assert outcome.error is None
    assert outcome.series("kl")[1] == 0.0
    config = json.loads((outcome.output / "config.json").read_text())
    assert config["vocab_size"] == load_file(outcome.output / "model.safetensors")["model.embed_tokens.weight"].shape[0]


@pytest.mark.long
def test_model_loads_as_any_other_and_has_its_dropout(outcomes, assets):
    found = AutoModelForCausalLM.from_pretrained(outcomes["grpo"].output)

    assert found.config.attention_dropout == 0.1
    assert torch.isfinite(found(torch.tensor([[1, 2, 3]])).logits).all()
    assert "reinforcement learning" in (outcomes["grpo"].output / "README.md").read_text()


@pytest.mark.long
def test_adapter_comes_out_alone_or_merged(outcomes):
    assert outcomes["adapter"].result["weight_files"] == ["adapter_model.safetensors"]
    assert outcomes["merged"].result["weight_files"] == ["model.safetensors"]


@pytest.mark.long
@pytest.mark.parametrize("name", ["judged", "judged chat"])
def test_model_judges_completions_of_texts_and_of_conversations(outcomes, name):
    assert outcomes[name].error is None
    assert outcomes[name].series("reward_std")[1] > 0


@pytest.mark.long
def test_model_without_scores_is_no_judge(outcomes):
    assert re.match(
        r"INVALID_CONFIG: reward_model_id: the model in model has no head .* \(score.weight is",
        outcomes["no judge"].error,
    )


@pytest.mark.long
def test_rewards_that_no_longer_differ_are_reported_once(outcomes):
    (note,) = outcomes["alike"].notes

    assert note["reason"] == "REWARDS_ALIKE"
    assert "since step 1 all completions have the same reward, 0:" in note["message"]


@pytest.mark.long
def test_step_that_can_not_be_filled_is_refused(outcomes):
    assert outcomes["shared"].error.startswith("INVALID_CONFIG: num_generations 3 does not divide the 8 completions")
    assert outcomes["few"].error.startswith(
        "DATA_INVALID: there are 1 prompts to train on, fewer than the 2 completed at once"
    )


def test_numbers_that_fit_are_named():
    with pytest.raises(InvalidHyperparameter, match=r"set num_generations to 2 or 3 or 4 or 6 or 12, or make those"):
        check_batch({"algorithm": "grpo", "num_generations": 5}, 12)
    with pytest.raises(InvalidHyperparameter, match=r"devices\): make those a multiple of 8"):
        check_batch({"algorithm": "rloo", "num_generations": 8}, 1)


@pytest.mark.parametrize(
    ("prompt", "completion", "named"), [(0, 64, "max_completion_length"), (40, 25, "max_prompt_length")]
)
def test_lengths_that_do_not_fit_are_refused(prompt, completion, named):
    with pytest.raises(InvalidHyperparameter, match="more than max_seq_length 64, which both have to share") as refused:
        check_lengths({"algorithm": "grpo", "max_prompt_length": prompt, "max_completion_length": completion}, 64)

    assert refused.value.name == named


@pytest.mark.parametrize(
    ("given", "name", "message"),
    [
        ({"loss_type": "grpo", "algorithm": "rloo"}, "loss_type", "has no effect with algorithm rloo"),
        ({"normalize_advantages": "true"}, "normalize_advantages", "set algorithm to rloo"),
        ({"reward": "length:3", "reward_model_id": "org/judge"}, "reward", "has no effect with reward_model_id"),
        ({"num_generations": "1"}, "num_generations", "is not a whole number >= 2"),
        ({"lora_r": "8"}, "lora_r", "has no effect with use_lora false"),
        ({"reward": "x" * 5000}, "reward", "is not a text of at most 4096 characters"),
    ],
)
def test_hyperparameter_that_says_nothing_is_refused(given, name, message):
    with pytest.raises(InvalidHyperparameter, match=message) as refused:
        parse("HF_TRAINER", "RLHF", {"reward": "exact", **given})

    assert refused.value.name == name
