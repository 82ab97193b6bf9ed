"""Tiny models with lively answers, and an engine made of one."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedTokenizerBase, PreTrainedTokenizerFast

from tests.builders.engine_specs import engine_spec
from tests.systems.once import once
from workers.trainers.inference.engine.transformers_engine import TransformersEngine
from workers.trainers.inference.engines import load_engine

LINES = ("Return the name, or the default.", "def get_name(self, key):", "No text is read, and no file is closed.")
SIZES = {
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 128,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}


@pytest.fixture(scope="session")
def tokenizer() -> PreTrainedTokenizerBase:
    """Byte-level BPE: every text has tokens, and a character may have several."""
    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = decoders.ByteLevel()
    special, alphabet = ["<pad>", "<s>", "</s>"], pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=320, special_tokens=special, initial_alphabet=alphabet, show_progress=False
    )
    bpe.train_from_iterator(LINES, trainer)
    names = dict(zip(("pad_token", "bos_token", "eos_token"), special, strict=True))
    return PreTrainedTokenizerFast(tokenizer_object=bpe, model_max_length=128, **names)


@pytest.fixture(scope="session")
def save_model(run_directory: Path, tokenizer: PreTrainedTokenizerBase) -> Callable[..., Path]:
    """Saves a model with random weights: `save_model(name, kind="llama", of=AutoModelForCausalLM, **config)`."""

    def save(name: str, kind: str = "llama", of: Any = AutoModelForCausalLM, **config: Any) -> Path:
        return once(run_directory / f"tiny-{name}", lambda directory: write(directory, kind, of, config))

    def write(directory: Path, kind: str, of: Any, config: dict[str, Any]) -> None:
        torch.manual_seed(3)
        model = of.from_config(AutoConfig.for_model(kind, **{**SIZES, "vocab_size": len(tokenizer), **config}))
        for parameter in model.parameters():
            parameter.data *= 3  # else the likeliest token is always the same
        model.save_pretrained(directory)
        tokenizer.save_pretrained(directory)

    return save


@pytest.fixture(scope="session")
def llama(save_model: Callable[..., Path]) -> Path:
    return save_model("llama")


@pytest.fixture(scope="session")
def engine(llama: Path) -> TransformersEngine:
    found = load_engine(engine_spec(llama))
    assert isinstance(found, TransformersEngine)
    return found


@pytest.fixture(scope="session")
def prompts(tokenizer: PreTrainedTokenizerBase) -> list[list[int]]:
    """Token ids of texts of many lengths."""
    return [list(tokenizer(f"def get_{number}(self" + ", key" * (number * 5 % 13)).input_ids) for number in range(10)]
