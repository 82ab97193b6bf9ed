"""What each method makes of a job's document: adapters, tokens, precision, measures, ends and clear refusals."""

import json
import math
import re

import pytest
import torch
from peft import PeftModel
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer

from tests.trainers.in_process import SMALL, Outcome, plan_of, runs

pytestmark = pytest.mark.long

NEW_TOKENS = {"additional_special_tokens": ["<|call|>", "<|end|>"], "pad_token": "<|pad|>"}
CHAT = {"sources": [{"split": "train[:60]"}], "max_seq_length": 64, "preprocess": {"tokenizer_config": NEW_TOKENS}}
TEXT = {"sources": [{"split": "train[:60]"}, {"split": "validation[60:72]"}, {"split": "test[72:84]"}]}
OFTEN = {"evaluation": {"strategy": "steps", "steps": 2}}
ADAPTER = {"lora_r": "4", "lora_alpha": "8", "lora_target_modules": "q_proj,v_proj"}


@pytest.fixture(scope="module")
def outcomes(assets, tmp_path_factory) -> dict[str, Outcome]:
    """All runs of this file, in one process."""
    directory = tmp_path_factory.mktemp("methods")

    def plan(name, training_type, hyperparameters=(), **changes):
        values = {"max_steps": "6", **dict(hyperparameters)}
        return plan_of(directory / name, assets, training_type, values, **changes)

    chat = {"data_config": CHAT, "data_paths": [str(assets / "chat.jsonl")], "training_config": {}}
    text = {"data_config": TEXT, "data_paths": [str(assets / "text.jsonl")] * 3}
    patient = {"max_steps": "30", "early_stopping_patience": "2", "early_stopping_threshold": "5"}
    plans = {
        "adapter": plan("adapter", "LORA", ADAPTER, training_config={"base_model": {"model_id": "/secret/model"}}),
        "new-tokens": plan("new-tokens", "LORA", {}, **chat),
        "merged": plan("merged", "LORA", {}, **chat, output_config={"merge_lora": True}),
        "bfloat16": plan("bfloat16", "FULL_FINETUNE", training_config={"base_model": {"dtype": "bfloat16"}}),
        "chat": plan("chat", "SFT", {"gradient_checkpointing": "true", "label_smoothing_factor": "0.1"}, **chat),
        "left": plan("left", "SFT", data_config=_padded("left")),
        "right": plan("right", "SFT", data_config=_padded("right")),
        "text": plan("text", "CONTINUED_PRETRAIN", **text),
        "plateau": plan("plateau", "SFT", {"lr_scheduler_type": "reduce_lr_on_plateau"}, training_config=OFTEN),
        "early": plan("early", "SFT", patient, training_config=OFTEN),
        "changed": plan("changed", "SFT", training_config={"base_model": {"model_kwargs": _CHANGES}}),
        **{name: plan(name, "LORA", {key: value}) for name, (key, value, _) in WRONG_MODULES.items()},
        **{
            name: plan(name, "SFT", training_config={"base_model": {"model_kwargs": kwargs}})
            for name, (kwargs, _) in WRONG_KWARGS.items()
        },
    }
    plans["after early"] = plan("after early", "SFT", patient, training_config=OFTEN)
    plans["after early"]["spec"]["resume_checkpoint"] = str(directory / "early" / "checkpoints" / "step-6")
    return runs(directory, plans)


_CHANGES = {
    "attn_implementation": "eager",
    "attention_dropout": 0.2,
    "max_position_embeddings": 1024,
    "rope_scaling": {"type": "linear", "factor": 2.0},
}
WRONG_MODULES = {
    "unknown module": ("lora_target_modules", "q_proj,vproj", r"no linear module vproj; it has .*q_proj.*v_proj"),
    "head": ("lora_target_modules", "lm_head", "can't have an adapter"),
    "unknown whole module": ("modules_to_save", "embeddings", r"no module embeddings; it has .*embed_tokens"),
}
WRONG_KWARGS = {
    "no flash": ({"attn_implementation": "flash_attention_2"}, "attn_implementation"),
    "unknown kwarg": ({"sliding": 3}, "sliding is unknown to a model of type llama"),
}


def _padded(side: str) -> dict[str, object]:
    return {"preprocess": {"padding": "max_length", "tokenizer_config": {"padding_side": side}}, "max_seq_length": 40}


def test_adapter_is_small_and_says_nothing_of_the_machine(outcomes, assets):
    output = outcomes["adapter"].output
    tensors = load_file(output / "adapter_model.safetensors")
    config = json.loads((output / "adapter_config.json").read_text())

    assert outcomes["adapter"].result["weight_files"] == ["adapter_model.safetensors"]
    assert len(tensors) == SMALL["num_hidden_layers"] * 2 * 2  # layers, modules, halves
    assert {tensor.dtype for tensor in tensors.values()} == {torch.float32}
    assert (config["r"], config["lora_alpha"], sorted(config["target_modules"])) == (4, 8, ["q_proj", "v_proj"])
    assert config["base_model_name_or_path"] == "model"
    assert "/secret" not in (output / "README.md").read_text()
    assert str(assets) not in (output / "README.md").read_text()


# peft asks for what transformers calls by a new name.
@pytest.mark.filterwarnings("ignore:.is_gradient_checkpointing. is deprecated:FutureWarning")
def test_adapter_with_new_tokens_loads_as_its_card_says_and_equals_the_merged_model(outcomes, assets):
    output = outcomes["new-tokens"].output
    tokenizer = AutoTokenizer.from_pretrained(output)
    base = AutoModelForCausalLM.from_pretrained(assets / "model")
    known = base.config.vocab_size
    base.resize_token_embeddings(len(tokenizer))
    adapted = PeftModel.from_pretrained(base, str(output)).eval()
    merged = AutoModelForCausalLM.from_pretrained(outcomes["merged"].output).eval()

    ids = tokenizer("say <|call|> 2 <|end|>", return_tensors="pt")["input_ids"]
    assert (len(tokenizer), merged.config.vocab_size) == (known + 3, known + 3)
    assert {known + 1, known + 2} <= set(ids.flatten().tolist())
    assert tokenizer.pad_token == "<|pad|>"
    torch.testing.assert_close(adapted(ids).logits, merged(ids).logits, atol=1e-5, rtol=1e-5)
    assert "base.resize_token_embeddings(len(tokenizer))" in (output / "README.md").read_text()
    assert outcomes["merged"].result["weight_files"] == ["model.safetensors"]
    assert not (outcomes["merged"].output / "adapter_config.json").exists()


def test_precision_of_the_weights_is_the_one_asked_for(outcomes):
    tensors = load_file(outcomes["bfloat16"].output / "model.safetensors")

    assert {tensor.dtype for tensor in tensors.values()} == {torch.bfloat16}
    assert json.loads((outcomes["bfloat16"].output / "config.json").read_text())["dtype"] == "bfloat16"


def test_chat_is_exported_with_its_template_and_a_card(outcomes):
    output = outcomes["chat"].output
    card = (output / "README.md").read_text()

    loss = outcomes["chat"].series("loss")
    assert loss[6] < loss[1]
    assert AutoTokenizer.from_pretrained(output).chat_template
    assert json.loads((output / "config.json").read_text())["use_cache"] is True
    assert "chat.jsonl (split train[:60])" in card
    assert "| transformers | " in card
    assert f"| loss | {loss[6]:.6g} |" in card


def test_side_of_the_padding_changes_nothing_that_is_learned(outcomes):
    """Only the attention's dropout falls on other places."""
    left, right = (outcomes[side].series("loss") for side in ("left", "right"))

    assert left.keys() == right.keys()
    assert left[1] == pytest.approx(right[1], rel=1e-2)
    assert left != right


def test_pretraining_measures_perplexity_and_the_test_split_once(outcomes):
    outcome = outcomes["text"]
    final = outcome.result["final_metrics"]

    assert outcome.phases[-3:] == ["EVALUATING", "EVALUATING", "EXPORTING"]
    assert final["eval_perplexity"] == pytest.approx(math.exp(final["eval_loss"]))
    assert final["test_perplexity"] == pytest.approx(math.exp(final["test_loss"]))
    assert set(outcome.series("test_loss")) == {6}
    assert final["test_loss"] != final["eval_loss"]
    assert {"test_mean_token_accuracy", "test_entropy"} <= final.keys()


def test_plateau_waits_for_evaluations(outcomes):
    rates = outcomes["plateau"].series("learning_rate")

    assert rates[1] == rates[2] == 5e-3
    assert set(outcomes["plateau"].series("eval_loss")) == {2, 4, 6}


def test_training_without_improvement_ends_early_and_stays_ended(outcomes):
    """The first evaluation is the best so far, the next two miss the threshold."""
    early, after = outcomes["early"], outcomes["after early"]

    assert early.result["stopped"] is None
    assert early.result["step"] == 6
    assert set(early.series("eval_loss")) == {2, 4, 6}
    assert [path.rpartition("-")[2] for path in early.checkpoints] == ["6"]
    assert after.series("loss") == {}
    assert after.result["step"] == 6
    weights = (outcome.output / "model.safetensors" for outcome in (early, after))
    assert len({path.read_bytes() for path in weights}) == 1


def test_model_is_changed_as_asked(outcomes):
    config = json.loads((outcomes["changed"].output / "config.json").read_text())

    assert (config["attention_dropout"], config["max_position_embeddings"]) == (0.2, 1024)
    assert config["rope_parameters"]["rope_type"] == "linear"
    assert config["rope_parameters"]["factor"] == 2.0
    assert config["rope_parameters"]["rope_theta"] == 10000.0


@pytest.mark.parametrize("name", WRONG_MODULES)
def test_module_that_is_not_there_is_named_with_those_that_are(outcomes, name):
    assert outcomes[name].error.startswith("INVALID_CONFIG: ")
    assert re.search(WRONG_MODULES[name][2], outcomes[name].error)


@pytest.mark.parametrize("name", WRONG_KWARGS)
def test_change_that_the_model_does_not_know_is_named(outcomes, name):
    assert outcomes[name].error.startswith("INVALID_CONFIG: ")
    assert WRONG_KWARGS[name][1] in outcomes[name].error
