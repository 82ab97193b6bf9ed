"""QLORA: the base model really is in 4 bits and stays as it is, and what comes out fits the model it was made from."""

from typing import Any

import pytest
import torch
from bitsandbytes.nn.modules import Linear4bit
from peft import PeftModel
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer

from app.domain.spec.hyperparameters.parsing import parse
from tests.trainers.in_process import plan_of, runs
from workers.rank.run_context import RunSpec
from workers.trainers.hf_trainer.model.quantized import load_quantized, train_in_float32

NEW_TOKENS = {"additional_special_tokens": ["<|call|>"]}
OFTEN = {"evaluation": {"strategy": "steps", "steps": 2}}
# peft asks for what transformers calls by a new name.
pytestmark = pytest.mark.filterwarnings("ignore:.is_gradient_checkpointing. is deprecated:FutureWarning")


def spec_of(assets, tmp_path, **values):
    return RunSpec(
        run_dir=tmp_path,
        framework="HF_TRAINER",
        training_type="QLORA",
        hyperparameters=parse("HF_TRAINER", "QLORA", values),
        model_path=str(assets / "model"),
        data_paths=(),
    )


def size_of(module):
    return sum(parameter.nbytes for parameter in module.parameters())


@pytest.mark.parametrize("kind", ["nf4", "fp4"])
def test_all_linear_layers_but_the_head_are_in_four_bits(assets, tmp_path, kind):
    model = load_quantized(spec_of(assets, tmp_path, bnb_4bit_quant_type=kind))
    whole = AutoModelForCausalLM.from_pretrained(assets / "model")
    linear = {name for name, module in whole.named_modules() if isinstance(module, torch.nn.Linear)}
    quantized: dict[str, Any] = {
        name: module for name, module in model.named_modules() if isinstance(module, Linear4bit)
    }

    assert quantized.keys() == linear - {"lm_head"}
    assert {module.weight.quant_state.quant_type for module in quantized.values()} == {kind}
    assert all(module.weight.quant_state.nested for module in quantized.values())
    assert size_of(model.model.layers) < size_of(whole.model.layers) / 7


def test_gradient_passes_after_a_pass_without_one(assets, tmp_path):
    model = load_quantized(spec_of(assets, tmp_path))
    layer = next(module for module in model.modules() if isinstance(module, Linear4bit))
    given = torch.randn(5, layer.in_features, requires_grad=True)
    before = layer(given).detach()

    with torch.no_grad():
        model.eval()(torch.tensor([[1, 2, 3]]))
    model.train()
    after = layer(given)
    after.sum().backward()

    assert torch.equal(before, after)
    assert given.grad is not None
    assert bool(given.grad.any())


def test_only_what_is_trained_becomes_float32():
    model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Linear(2, 2)).to(torch.bfloat16)
    model[0].requires_grad_(False)

    train_in_float32(model)

    assert [parameter.dtype for parameter in model.parameters()] == [torch.bfloat16] * 2 + [torch.float32] * 2


@pytest.fixture(scope="module")
def outcomes(assets, tmp_path_factory):
    directory = tmp_path_factory.mktemp("qlora")
    splits = [{"split": "train[:48]"}, {"split": "validation[48:]"}]
    chat = {"preprocess": {"tokenizer_config": NEW_TOKENS}, "sources": splits}
    common: dict[str, Any] = {
        "data_paths": [str(assets / "chat.jsonl")] * 2,
        "training_config": OFTEN,
        "data_config": chat,
    }

    def plan(name, **changes):
        return plan_of(directory / name, assets, "QLORA", {"max_steps": "6"}, **common, **changes)

    return runs(directory, {"adapter": plan("adapter"), "merged": plan("merged", output_config={"merge_lora": True})})


@pytest.mark.long
def test_adapter_learns_between_evaluations(outcomes):
    losses = outcomes["adapter"].series("loss")

    assert outcomes["adapter"].error is None
    assert losses[6] < losses[1]
    assert set(outcomes["adapter"].series("eval_loss")) == {2, 4, 6}
    assert {
        tensor.dtype for tensor in load_file(outcomes["adapter"].output / "adapter_model.safetensors").values()
    } == {torch.float32}


@pytest.mark.long
def test_merged_model_is_the_whole_base_model_with_the_adapter(outcomes, assets):
    output = outcomes["adapter"].output
    tokenizer = AutoTokenizer.from_pretrained(output)
    base = AutoModelForCausalLM.from_pretrained(assets / "model")
    base.resize_token_embeddings(len(tokenizer))
    adapted = PeftModel.from_pretrained(base, output).eval()
    merged = AutoModelForCausalLM.from_pretrained(outcomes["merged"].output).eval()
    ids = torch.tensor([[1, 5, 9, len(tokenizer) - 1]])

    with torch.no_grad():
        torch.testing.assert_close(merged(ids).logits, adapted(ids).logits, rtol=1e-4, atol=1e-4)
    assert merged.dtype == torch.float32
    assert not any(isinstance(module, Linear4bit) for module in merged.modules())
