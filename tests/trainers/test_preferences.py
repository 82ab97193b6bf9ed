"""DPO: what is compared with what, what is measured and exported, and what is refused."""

import json
import math
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from datasets import Dataset
from peft import PeftModel
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

from app.domain.spec.hyperparameters.parsing import InvalidHyperparameter, parse
from app.domain.spec.metrics import PREFERENCES
from tests.trainers.in_process import Outcome, plan_of, runs
from workers.trainers.hf_trainer.loop.batch_order import LengthGrouped
from workers.trainers.hf_trainer.loop.collator import preference_collator

STEPS = 6
OFTEN = {"evaluation": {"strategy": "steps", "steps": 2}}
THREE = {"sources": [{"split": "train[:60]"}, {"split": "validation[60:72]"}, {"split": "test[72:84]"}]}
PAIRS = [
    {"prompt_ids": [5, 6], "chosen_ids": [7], "rejected_ids": [8, 9]},
    {"prompt_ids": [5], "chosen_ids": [6, 7, 8], "rejected_ids": [9]},
]


@pytest.fixture(scope="module")
def outcomes(assets, tmp_path_factory) -> dict[str, Outcome]:
    """All runs of this file, in one process."""
    directory = tmp_path_factory.mktemp("preferences")
    three = {"data_config": THREE, "data_paths": [str(assets / "preferences.jsonl")] * 3, "training_config": OFTEN}
    streaming = {"data_config": {"streaming": True, "shuffle_buffer": 8}}
    left = {"data_config": {"preprocess": {"tokenizer_config": {"padding_side": "left"}}}}
    losses = ("ipo", "apo_zero", "robust")
    smoothed = {"robust": {"label_smoothing": "0.1"}}
    best = {"checkpoint": {"save_steps": 2, "metric_for_best_model": "eval_rewards/margins"}}

    def plan(name: str, hyperparameters: Any = (), **changes: Any) -> dict[str, Any]:
        values = {"max_steps": str(STEPS), **dict(hyperparameters)}
        return plan_of(directory / name, assets, "DPO", values, **changes)

    return runs(
        directory,
        {
            "all": plan("all", {"load_best_model_at_end": "true"}, **three, output_config=best),
            "adapter": plan("adapter", {"use_lora": "true"}),
            "merged": plan("merged", {"use_lora": "true"}, output_config={"export_format": "merged"}),
            "recomputed": plan("recomputed", {"use_lora": "true", "gradient_checkpointing": "true"}),
            "dropping": plan("dropping", {"disable_dropout": "false"}),
            "streamed": plan("streamed", **streaming),
            "left": plan("left", **left),
            **{name: plan(name, {"loss_type": name, **smoothed.get(name, {})}) for name in losses},
        },
    )


@pytest.mark.long
def test_training_begins_at_the_reference_and_learns_what_is_preferred(outcomes):
    for name in ("all", "adapter", "streamed"):
        series = outcomes[name].series

        assert series("loss")[1] == pytest.approx(math.log(2), abs=1e-6)
        assert series("rewards/margins")[1] == 0.0
        assert series("loss")[STEPS] < series("loss")[2]
        assert series("rewards/margins")[STEPS] > series("rewards/margins")[2] > 0
        assert series("rewards/accuracies")[STEPS] > 0.9
        assert outcomes[name].result["tokens"] > 0


@pytest.mark.long
def test_everything_is_measured_while_training_evaluating_and_of_the_test_split(outcomes):
    outcome = outcomes["all"]

    assert set(PREFERENCES) <= outcome.values.keys()
    for name in PREFERENCES:
        assert list(outcome.series(name)) == list(range(1, STEPS + 1))
        assert list(outcome.series(f"eval_{name}")) == [2, 4, 6]
        assert list(outcome.series(f"test_{name}")) == [STEPS]
    margins = outcome.series("rewards/margins")
    assert margins[3] == pytest.approx(outcome.series("rewards/chosen")[3] - outcome.series("rewards/rejected")[3])


@pytest.mark.long
def test_best_weights_are_those_of_the_widest_margin(outcomes):
    final, margins = outcomes["all"].result["final_metrics"], outcomes["all"].series("eval_rewards/margins")

    assert final["eval_rewards/margins"] == max(margins.values())


# peft asks for what transformers calls by a new name.
@pytest.mark.filterwarnings("ignore:.is_gradient_checkpointing. is deprecated:FutureWarning")
@pytest.mark.long
def test_adapter_on_its_base_is_the_merged_model(outcomes, assets):
    output = outcomes["adapter"].output
    base = AutoModelForCausalLM.from_pretrained(assets / "model")
    adapted = PeftModel.from_pretrained(base, str(output)).eval()
    merged = AutoModelForCausalLM.from_pretrained(outcomes["merged"].output).eval()
    ids = torch.tensor([[1, 5, 9, 30]])

    assert outcomes["adapter"].result["weight_files"] == ["adapter_model.safetensors"]
    assert all(".ref." not in name for name in load_file(output / "adapter_model.safetensors"))
    assert "adapter was made by direct preference optimization" in (output / "README.md").read_text()
    with torch.no_grad():
        torch.testing.assert_close(adapted(ids).logits, merged(ids).logits, atol=1e-4, rtol=1e-4)


@pytest.mark.long
def test_exported_model_is_as_the_base_model_was_configured(outcomes, assets):
    base, found = (
        json.loads((place / "config.json").read_text()) for place in (assets / "model", outcomes["all"].output)
    )

    assert found["attention_dropout"] == base["attention_dropout"] == 0.1


@pytest.mark.long
def test_dropout_is_the_policys_if_it_is_wanted(outcomes):
    assert outcomes["dropping"].series("rewards/margins")[1] != 0.0


@pytest.mark.long
def test_side_of_the_padding_changes_nothing(outcomes):
    right, left = outcomes["adapter"], outcomes["left"]
    assert left.error is None
    assert left.series("logps/chosen")[1] == pytest.approx(right.series("logps/chosen")[1], rel=1e-4)


@pytest.mark.long
def test_recomputed_activations_change_nothing(outcomes):
    recomputed, adapter = (outcomes[name].series("loss") for name in ("recomputed", "adapter"))

    assert recomputed == pytest.approx(adapter, rel=1e-4)


@pytest.mark.long
@pytest.mark.parametrize("name", ["ipo", "apo_zero", "robust"])
def test_other_losses_widen_the_margin_too(outcomes, name):
    assert outcomes[name].error is None
    assert outcomes[name].series("rewards/margins")[STEPS] > 0
    assert outcomes[name].series("loss") != outcomes["all"].series("loss")


def test_pairs_are_padded_on_the_side_of_the_tokenizer():
    def padded(side: str) -> dict[str, Any]:
        tokenizer: Any = SimpleNamespace(pad_token_id=0, padding_side=side)
        spec: Any = SimpleNamespace(data_config={})
        batch = preference_collator(spec, tokenizer)(PAIRS)
        return {name: values.tolist() for name, values in batch.items()}

    right, left = padded("right"), padded("left")

    assert right["input_ids"] == [[5, 6, 7, 0], [5, 6, 7, 8], [5, 6, 8, 9], [5, 9, 0, 0]]
    assert left["input_ids"] == [[0, 5, 6, 7], [5, 6, 7, 8], [5, 6, 8, 9], [0, 0, 5, 9]]
    assert left["completion_mask"] == [[0, 0, 0, 1], [0, 1, 1, 1], [0, 0, 1, 1], [0, 0, 0, 1]]
    assert left["position_ids"] == [[0, 0, 1, 2], [0, 1, 2, 3], [0, 1, 2, 3], [0, 0, 0, 1]]


def test_pairs_are_grouped_by_the_longer_sequence():
    lengths = [1, 9, 2, 8, 5, 3, 7, 6] * 3
    answers = [([1] * length, [1]) if number % 2 else ([1], [1] * length) for number, length in enumerate(lengths)]
    pairs = [{"prompt_ids": [1], "chosen_ids": one, "rejected_ids": other} for one, other in answers]
    sequences = [{"input_ids": [1] * (1 + length)} for length in lengths]

    by_pairs, by_sequences = (LengthGrouped(Dataset.from_list(rows), 2, 0, lambda: 0) for rows in (pairs, sequences))

    assert list(by_pairs) == list(by_sequences)


@pytest.mark.parametrize(
    ("given", "name", "message"),
    [
        ({"lora_r": "8"}, "lora_r", "has no effect with use_lora false; leave it out, or set use_lora to true"),
        ({"label_smoothing": "0.1"}, "label_smoothing", "has no effect with loss_type sigmoid"),
        ({"loss_type": "exo_pair"}, "label_smoothing", "must be above 0"),
        ({"beta": "0"}, "beta", "is not a number"),
        ({"loss_type": "kto"}, "loss_type", "is not one of sigmoid"),
        ({"packing": "true"}, "packing", "unknown to HF_TRAINER DPO"),
    ],
)
def test_hyperparameter_that_says_nothing_is_refused(given, name, message):
    with pytest.raises(InvalidHyperparameter, match=message) as refused:
        parse("HF_TRAINER", "DPO", given)

    assert refused.value.name == name
