"""Each form of an exported model, loaded back by its own library: the same weights, tokens and logits come out."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import onnxruntime
import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

from workers.rank.run_context import RunSpec
from workers.trainers.failures import ExportFailed
from workers.trainers.hf_trainer.model.export import export_model
from workers.trainers.hf_trainer.model.model_card import RunModelCard

TEXT = "Hello, the world's 12345 functions\n  return  x — größer"
SMALL = {
    "vocab_size": 1040,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 128,
}
TOKENS = torch.tensor([[5, 77, 900, 12, 40, 3, 512]])


@pytest.fixture
def tokenizer(assets):
    return AutoTokenizer.from_pretrained(assets / "model")


def made(kind: str, dtype: torch.dtype = torch.float32, **changes: Any) -> Any:
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model(kind, **{**SMALL, **changes}), dtype=dtype).eval()
    for name, parameter in model.named_parameters():
        if name.endswith("bias"):
            torch.nn.init.normal_(parameter)  # drawn as zeros, they could be lost unseen
    return model


def exported(model: Any, tokenizer: Any, directory: Path, form: str) -> Path:
    spec = RunSpec(
        run_dir=directory,
        framework="HF_TRAINER",
        training_type="SFT",
        hyperparameters={},
        model_path="",
        data_paths=("/srv/data.jsonl",),
    )
    card = RunModelCard(replace(spec, output_config={"export_format": form}), {"loss": 1.5}, 3)
    names = export_model(model, tokenizer, card, directory / "out")
    assert names == ({"pytorch": "pytorch_model.bin", "gguf": "model.gguf", "onnx": "model.onnx"}[form],)
    return directory / "out"


@torch.no_grad()
def logits(model: Any) -> torch.Tensor:
    found: torch.Tensor = model(TOKENS).logits
    return found


def test_pytorch_is_a_state_dict_that_transformers_loads(tmp_path, tokenizer):
    model = made("llama", tie_word_embeddings=True)

    directory = exported(model, tokenizer, tmp_path, "pytorch")

    tensors = torch.load(directory / "pytorch_model.bin", weights_only=True)
    assert all(torch.equal(tensors[name], value) for name, value in model.state_dict().items() if name in tensors)
    loaded = AutoModelForCausalLM.from_pretrained(directory, use_safetensors=False, weights_only=True)
    assert torch.equal(logits(loaded), logits(model))


@pytest.mark.parametrize(("kind", "tied"), [("llama", True), ("llama", False), ("qwen2", True), ("qwen3", True)])
def test_gguf_is_read_by_its_own_package_and_by_transformers(tmp_path, tokenizer, kind, tied):
    # Whatever its configuration says, transformers reads this size into every qwen3.
    model = made(kind, tie_word_embeddings=tied, head_dim=128 if kind == "qwen3" else SMALL["head_dim"])
    if kind == "qwen2":  # in whose directory transformers makes a tokenizer of its own class
        tokenizer.save_pretrained(tmp_path / "qwen2")
        model.config.save_pretrained(tmp_path / "qwen2")
        tokenizer = AutoTokenizer.from_pretrained(tmp_path / "qwen2")

    directory = exported(model, tokenizer, tmp_path, "gguf")

    reader = gguf.GGUFReader(directory / "model.gguf")
    assert reader.fields["general.architecture"].contents() == kind
    assert len(reader.fields["tokenizer.ggml.tokens"].data) == SMALL["vocab_size"]
    loaded = AutoModelForCausalLM.from_pretrained(directory, gguf_file="model.gguf").eval()
    assert torch.allclose(logits(loaded), logits(model), atol=1e-6)
    (tmp_path / "alone").mkdir()
    (directory / "model.gguf").rename(tmp_path / "alone" / "model.gguf")
    tokens = AutoTokenizer.from_pretrained(tmp_path / "alone", gguf_file="model.gguf")
    assert tokens(TEXT)["input_ids"] == tokenizer(TEXT)["input_ids"]
    assert tokens.eos_token == tokenizer.eos_token


def test_gguf_of_bfloat16_is_not_rounded(tmp_path, tokenizer):
    model = made("llama", torch.bfloat16)

    directory = exported(model, tokenizer, tmp_path, "gguf")

    loaded = AutoModelForCausalLM.from_pretrained(directory, gguf_file="model.gguf", dtype=torch.float32)
    found, trained = loaded.state_dict(), model.state_dict()
    assert all(torch.equal(found[name], value.float()) for name, value in trained.items())


@pytest.mark.parametrize(
    ("kind", "changes", "why"),
    [
        ("gpt2", {"n_embd": 32, "n_layer": 1, "n_head": 2}, "supports models of type llama, qwen2, qwen3"),
        ("llama", {"attention_bias": True}, "biases of a llama's layers"),
        ("llama", {"rope_parameters": {"rope_type": "linear", "factor": 2.0, "rope_theta": 1e4}}, "rotary embeddings"),
    ],
)
def test_what_gguf_can_not_say_is_refused(tmp_path, tokenizer, kind, changes, why):
    with pytest.raises(ExportFailed, match=why):
        exported(made(kind, **changes), tokenizer, tmp_path, "gguf")


@pytest.mark.long
def test_onnx_computes_the_logits_of_torch(tmp_path, tokenizer):
    model = made("llama")

    directory = exported(model, tokenizer, tmp_path, "onnx")

    session = onnxruntime.InferenceSession(str(directory / "model.onnx"), providers=["CPUExecutionProvider"])
    batch = {"input_ids": TOKENS.numpy(), "attention_mask": np.ones_like(TOKENS.numpy())}
    (found,) = session.run(None, batch)
    assert torch.allclose(torch.from_numpy(found), logits(model), atol=1e-4)
