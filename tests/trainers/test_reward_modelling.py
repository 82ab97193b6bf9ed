"""Reward models: what they learn and measure, what comes out, and that RLHF is judged by it."""

import json
from typing import Any

import pytest
import torch
from peft import PeftModel
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from app.domain.spec.hyperparameters.parsing import InvalidHyperparameter, parse
from app.domain.spec.metrics import JUDGEMENTS
from tests.trainers.in_process import Outcome, plan_of, runs
from workers.trainers.hf_trainer.loop.collator import RewardPadding

STEPS = 24
JUDGES = {"algorithm": "reward", "max_steps": str(STEPS), "learning_rate": "2e-3"}
NEW_TOKENS = {
    "sources": [{"split": "train[:60]"}, {"split": "validation[60:72]"}],
    "preprocess": {"tokenizer_config": {"additional_special_tokens": ["<|call|>"], "pad_token": "<|pad|>"}},
}
PAIR = {"prompt_ids": [5, 6], "chosen_ids": [7], "rejected_ids": [8, 9]}


@pytest.fixture(scope="module")
def outcomes(assets, tmp_path_factory) -> dict[str, Outcome]:
    """All runs of this file, in one process; the last one is judged by what the first one made."""
    directory = tmp_path_factory.mktemp("judges")

    def plan(name: str, hyperparameters: Any = (), **changes: Any) -> dict[str, Any]:
        return plan_of(directory / name, assets, "RLHF", {**JUDGES, **dict(hyperparameters)}, **changes)

    whole = plan("whole", {"center_rewards_coefficient": "0.01"})
    adapter = {"use_lora": "true", "max_steps": "3"}
    first = runs(
        directory,
        {
            "whole": whole,
            "adapter": plan("adapter", adapter, data_config=NEW_TOKENS),
            "merged": plan("merged", {**adapter, "lora_r": "4"}, output_config={"merge_lora": True}),
            "streamed": plan("streamed", {"max_steps": "3"}, data_config={"streaming": True}),
            "head": plan("head", {**adapter, "lora_target_modules": "score"}),
        },
    )
    policy = {"num_generations": "4", "max_completion_length": "8", "max_steps": "3"}
    judged = plan_of(directory / "judged", assets, "RLHF", policy, reward_model_path=str(first["whole"].output))
    return {**first, **runs(directory, {"judged": judged})}


@pytest.mark.long
@pytest.mark.timeout(300)  # it waits for all the runs
def test_chosen_answers_get_the_higher_numbers(outcomes):
    outcome = outcomes["whole"]

    assert outcome.error is None
    assert {*JUDGEMENTS, *(f"eval_{name}" for name in JUDGEMENTS)} <= outcome.values.keys()
    assert not {"entropy", "mean_token_accuracy", "kl", "reward"} & outcome.values.keys()
    assert outcome.series("eval_accuracy")[STEPS] > 0.9
    assert outcome.series("eval_margin")[STEPS] > 0.5


@pytest.mark.long
def test_plain_transformers_loads_it_and_it_prefers_what_it_learnt_to(outcomes, assets):
    directory = outcomes["whole"].output
    model, loading = AutoModelForSequenceClassification.from_pretrained(directory, output_loading_info=True)
    tokenizer = AutoTokenizer.from_pretrained(directory)
    lines = (assets / "preferences.jsonl").read_text().splitlines()[60:72]
    pairs = [json.loads(line) for line in lines]

    def worth(name: str) -> torch.Tensor:
        texts = [pair["prompt"] + pair[name] for pair in pairs]
        how = {"padding": True, "truncation": True, "max_length": 48, "add_special_tokens": False}
        found: torch.Tensor = model(**tokenizer(texts, return_tensors="pt", **how)).logits[:, 0]
        return found

    assert not loading["missing_keys"]
    assert not loading["unexpected_keys"]
    assert model.config.num_labels == 1
    with torch.no_grad():
        difference = (worth("chosen") - worth("rejected")).tolist()
    # They are the validation's pairs, measured there with the weights of the last step.
    expected = outcomes["whole"].series("eval_margin")[STEPS]
    assert sum(difference) / len(difference) == pytest.approx(expected, abs=1e-3)


@pytest.mark.long
def test_card_says_what_it_is_and_how_to_load_it(outcomes):
    card, of_adapter = ((outcomes[name].output / "README.md").read_text() for name in ("whole", "adapter"))

    assert "pipeline_tag: text-classification" in card
    assert "AutoModelForSequenceClassification.from_pretrained" in card
    assert "num_labels=1)" in of_adapter


# peft asks for what transformers calls by a new name.
@pytest.mark.filterwarnings("ignore:.is_gradient_checkpointing. is deprecated:FutureWarning")
@pytest.mark.long
def test_adapter_has_its_head_and_new_embeddings(outcomes, assets):
    assert outcomes["adapter"].error is None
    tokenizer = AutoTokenizer.from_pretrained(outcomes["adapter"].output)
    base = AutoModelForSequenceClassification.from_pretrained(assets / "model", num_labels=1)
    base.resize_token_embeddings(len(tokenizer))
    model = PeftModel.from_pretrained(base, str(outcomes["adapter"].output))

    assert any("score" in name for name, _ in model.named_parameters())
    assert torch.isfinite(model(torch.tensor([[1, 2, 3]])).logits).all()


@pytest.mark.long
def test_merged_adapter_is_a_judge_like_any(outcomes):
    assert outcomes["merged"].error is None
    _, loading = AutoModelForSequenceClassification.from_pretrained(outcomes["merged"].output, output_loading_info=True)

    assert not loading["missing_keys"]


@pytest.mark.long
def test_streamed_pairs_are_learnt_from(outcomes):
    assert outcomes["streamed"].error is None
    assert list(outcomes["streamed"].series("margin")) == [1, 2, 3]


@pytest.mark.long
def test_head_that_scores_is_trained_whole(outcomes):
    assert outcomes["head"].error.startswith(
        "INVALID_CONFIG: lora_target_modules: the head score can't have an adapter"
    )


@pytest.mark.long
def test_policy_is_judged_by_it(outcomes):
    assert outcomes["judged"].error is None
    assert outcomes["judged"].series("reward_std")[1] > 0


def test_prompt_and_answer_are_read_together_padded_on_either_side():
    right, left = (RewardPadding(pad_token_id=0, left=left)([PAIR]) for left in (False, True))

    assert right["input_ids"].tolist() == [[5, 6, 7, 0], [5, 6, 8, 9]]
    assert left["input_ids"].tolist() == [[0, 5, 6, 7], [5, 6, 8, 9]]
    assert left["position_ids"].tolist() == [[0, 0, 1, 2], [0, 1, 2, 3]]


@pytest.mark.parametrize(
    ("given", "name", "message"),
    [
        ({"algorithm": "reward", "reward": "length:3"}, "reward", "has no effect with algorithm reward"),
        ({"algorithm": "reward", "num_generations": "4"}, "num_generations", "set algorithm to grpo or rloo"),
        ({"algorithm": "reward", "beta": "0.1"}, "beta", "has no effect with algorithm reward"),
        ({"algorithm": "reward", "loss_type": "grpo"}, "loss_type", "has no effect with algorithm reward"),
        ({"center_rewards_coefficient": "0.1"}, "center_rewards_coefficient", "set algorithm to reward"),
    ],
)
def test_hyperparameters_of_the_other_algorithms_are_refused(given, name, message):
    with pytest.raises(InvalidHyperparameter, match=message) as refused:
        parse("HF_TRAINER", "RLHF", given)

    assert refused.value.name == name
