"""Batches and features with the engine that every node has, on a model with random weights."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from tests.unit.workers.trainers.inference.runs import contents, lines_of, make_spec, run, write_lines
from tests.unit.workers.trainers.inference.stand_in_engine import WORDS, word_tokenizer

CONTEXT = 32


@pytest.fixture
def model(tmp_path: Path) -> str:
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=len(WORDS),
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=2,
        max_position_embeddings=CONTEXT,
        bos_token_id=0,
        eos_token_id=1,
    )
    LlamaForCausalLM(config).save_pretrained(tmp_path / "random")
    word_tokenizer().save_pretrained(tmp_path / "random")
    return str(tmp_path / "random")


def output_of(tmp_path: Path, model: str, section: dict[str, Any], name: str) -> Path:
    data = write_lines(tmp_path / "data.jsonl", ({"prompt": "w1 " * (i + 1)} for i in range(7)))
    spec = make_spec(tmp_path, data, section, run=name, framework="TRANSFORMERS", model_path=model)
    run(spec)
    return spec.run_dir / "output"


def test_sampled_batch_has_the_same_bytes_when_it_is_made_again(tmp_path: Path, model: str) -> None:
    task = {"max_new_tokens": 5, "temperature": 1.0, "seed": 3}
    section = {"task": task, "output": {"shard_records": 3}}

    first = output_of(tmp_path, model, section, "first")
    second = output_of(tmp_path, model, section, "second")

    assert contents(first) == contents(second)
    assert all(1 <= row["completion_tokens"] <= 5 or row["finish_reason"] == "stop" for row in lines_of(first))


def test_features_of_a_causal_model(tmp_path: Path, model: str) -> None:
    section = {"task": {"type": "embed", "pooling": "last", "normalize": True}, "output": {"format": "npy"}}

    output = output_of(tmp_path, model, section, "features")

    matrix = np.load(output / "embeddings.npy")
    assert matrix.shape == (7, 16)
    assert np.linalg.norm(matrix, axis=1) == pytest.approx(np.ones(7), abs=1e-5)
    assert json.loads((output / "meta.json").read_text())["dimension"] == 16


def test_prompt_that_fits_no_context_is_refused_alone(tmp_path: Path, model: str) -> None:
    section = {"task": {"max_new_tokens": CONTEXT - 5}, "on_error": {"max_share": 0.5}}

    rows = lines_of(output_of(tmp_path, model, section, "long"))

    assert [row.get("error", {}).get("code") for row in rows] == [None] * 5 + ["CONTEXT_TOO_LONG"] * 2
