"""What the data tests share: small tokenizers made here, files written as they are needed, and run specs."""

import gzip
import json

import pytest
import zstandard
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerFast

from workers.rank.run_context import RunSpec
from workers.trainers.data.sources import DataFile

_CORPUS = ["The quick brown fox jumps over the lazy dog 0123456789", "user assistant system What is 2 + 2? It is 4."]
_SPECIAL = ["<s>", "</s>", "<pad>", "<|im_start|>", "<|im_end|>"]


@pytest.fixture(scope="session")
def trained_tokenizer():
    """A byte-level BPE of some 300 tokens."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=320,
        special_tokens=_SPECIAL,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(_CORPUS, trainer)
    return tokenizer.to_str()


@pytest.fixture
def make_tokenizer(trained_tokenizer):
    """A tokenizer of its own; `adds_bos` makes one that begins every text with BOS, as Llama's do."""

    def made(*, adds_bos=False, chat_template=None):
        backend = Tokenizer.from_str(trained_tokenizer)
        if adds_bos:
            backend.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 0)])
        return PreTrainedTokenizerFast(
            tokenizer_object=backend, bos_token="<s>", eos_token="</s>", pad_token="<pad>", chat_template=chat_template
        )

    return made


@pytest.fixture
def write(tmp_path):
    """Writes a file, compressed as its name says, and returns it; objects become lines of JSON."""

    def written(*lines, name="data.jsonl"):
        content = b"".join(
            line if isinstance(line, bytes) else line.encode() if isinstance(line, str) else _line(line)
            for line in lines
        )
        if name.endswith(".gz"):
            content = gzip.compress(content)
        elif name.endswith(".zst"):
            content = zstandard.compress(content)
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        return DataFile(path, path.name)

    return written


@pytest.fixture
def make_spec(tmp_path):
    """A run over files, one source each; every file may come as (file, document of its source)."""

    def made(*files, training_type="SFT", hyperparameters=None, world_size=1, **data_config):
        pairs = [file if isinstance(file, tuple) else (file, {}) for file in files]
        return RunSpec(
            run_dir=tmp_path,
            framework="HF_TRAINER",
            training_type=training_type,
            hyperparameters=hyperparameters or {},
            model_path="",
            data_paths=tuple(str(file.path) for file, _ in pairs),
            sources=tuple(
                {"location": file.name, "files": [{"path": str(file.path), "name": file.name}]} for file, _ in pairs
            ),
            data_config={"sources": [{"path": file.name, **source} for file, source in pairs], **data_config},
            world_size=world_size,
        )

    return made


def _line(value) -> bytes:
    return (json.dumps(value) + "\n").encode()
