"""A training that continues an adapter starts with its weights, to the last bit."""

from pathlib import Path

import pytest
import torch
from peft import get_peft_model_state_dict
from safetensors.torch import load_file
from transformers import LlamaConfig, LlamaForCausalLM

from app.domain.spec.hyperparameters.parsing import parse
from workers.rank.run_context import RunSpec
from workers.trainers.failures import InvalidConfig, ModelNotFound
from workers.trainers.hf_trainer.model.lora_adapters import adapted

pytestmark = pytest.mark.filterwarnings("ignore:.is_gradient_checkpointing. is deprecated:FutureWarning")


def base_model() -> LlamaForCausalLM:
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=64,
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        tie_word_embeddings=True,
    )
    return LlamaForCausalLM(config)


def spec_of(weights: Path | None = None, *, seed: int = 1, **hyperparameters: str) -> RunSpec:
    return RunSpec(
        run_dir=Path("/nowhere"),
        framework="HF_TRAINER",
        training_type="LORA",
        hyperparameters=parse("HF_TRAINER", "LORA", {"lora_r": "4", **hyperparameters}),
        model_path="",
        data_paths=(),
        data_config={"seed": seed},
        weights_path=str(weights or ""),
    )


@pytest.fixture(params=[False, True], ids=["as-they-are", "with-new-tokens"])
def new_tokens(request):
    return request.param


@pytest.fixture
def stored(tmp_path, new_tokens):
    """An adapter whose weights have been trained."""
    made = adapted(base_model(), spec_of(), new_tokens=new_tokens)
    torch.manual_seed(2)
    with torch.no_grad():
        for weight in made.parameters():
            if weight.requires_grad:
                weight.copy_(torch.randn_like(weight))
    made.save_pretrained(str(tmp_path / "adapter"), save_embedding_layers=False)
    return tmp_path / "adapter"


def test_adapter_is_continued_from_the_stored_weights_on_the_same_base(stored, new_tokens):
    made = adapted(base_model(), spec_of(stored, seed=9), new_tokens=new_tokens)

    weights, before = (
        get_peft_model_state_dict(made, save_embedding_layers=False),
        load_file(stored / "adapter_model.safetensors"),
    )
    assert weights.keys() == before.keys()
    assert all(torch.equal(weights[name], before[name]) for name in before)
    assert {name for name, weight in made.named_parameters() if weight.requires_grad} == {
        name
        for name, weight in adapted(base_model(), spec_of(), new_tokens=new_tokens).named_parameters()
        if weight.requires_grad
    }


@pytest.mark.parametrize("change", [{"lora_r": "8"}, {"lora_target_modules": "q_proj"}], ids=["rank", "modules"])
def test_adapter_of_another_form_is_refused(stored, change):
    with pytest.raises(InvalidConfig, match="repeat the hyperparameters"):
        adapted(base_model(), spec_of(stored, **change), new_tokens=False)


def test_directory_without_an_adapter_is_refused(tmp_path):
    with pytest.raises(ModelNotFound, match="can't be read"):
        adapted(base_model(), spec_of(tmp_path), new_tokens=False)
