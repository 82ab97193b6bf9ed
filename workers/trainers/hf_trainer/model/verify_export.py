"""Verifies an exported model: reloads the written files and compares them with the trained model bit by bit."""

from collections.abc import Mapping
from pathlib import Path

import torch
from peft import PeftConfig
from safetensors import safe_open
from transformers import AutoConfig, AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase

from workers.trainers.bitwise import bitwise_equal
from workers.trainers.failures import ExportFailed

Tensors = Mapping[str, torch.Tensor]


def check_model(model: PreTrainedModel, directory: Path, *, trust_remote_code: bool) -> None:
    """Compare the configuration and every tensor of a whole model, one tensor in memory at a time. Raises
    ExportFailed.
    """
    AutoConfig.from_pretrained(directory, trust_remote_code=trust_remote_code)
    expected = model.state_dict()
    written = _where(directory)
    if written.keys() <= expected.keys():
        _check_tensors(_without_copies(expected, written), written)
    else:
        # Some architectures store tensors under other names than in memory; then only the loaded model can be compared.
        _check_loaded(model, directory, trust_remote_code=trust_remote_code)


def check_adapter(expected: Tensors, directory: Path) -> None:
    """Compare the configuration and every tensor of an adapter; `expected` uses the names that peft writes. Raises
    ExportFailed.
    """
    PeftConfig.from_pretrained(str(directory))
    _check_tensors(expected, _where(directory))


def check_tokenizer(tokenizer: PreTrainedTokenizerBase, directory: Path, *, trust_remote_code: bool) -> None:
    """Compare vocabulary, special tokens and chat template. Raises ExportFailed."""
    loaded = AutoTokenizer.from_pretrained(directory, trust_remote_code=trust_remote_code)
    same = {
        "vocabulary": loaded.get_vocab() == tokenizer.get_vocab(),
        "special tokens": loaded.special_tokens_map == tokenizer.special_tokens_map,
        "chat template": loaded.chat_template == tokenizer.chat_template,
    }
    for what, equal in same.items():
        if not equal:
            raise ExportFailed(f"the exported tokenizer has another {what} than the one that was trained with")


def _where(directory: Path) -> dict[str, Path]:
    """The file that holds each tensor."""
    found: dict[str, Path] = {}
    for path in sorted(directory.glob("*.safetensors")):
        with safe_open(path, framework="pt") as file:
            found |= dict.fromkeys(file.keys(), path)
    if not found:
        raise ExportFailed("the exported model has no tensors")
    return found


def _without_copies(tensors: Tensors, written: Mapping[str, Path]) -> dict[str, torch.Tensor]:
    """Tensors that share memory are written once."""
    covered = {_memory(tensors[name]) for name in written}
    return {name: tensor for name, tensor in tensors.items() if name in written or _memory(tensor) not in covered}


def _memory(tensor: torch.Tensor) -> tuple[int, torch.Size, tuple[int, ...]]:
    return tensor.data_ptr(), tensor.shape, tensor.stride()


def _check_tensors(expected: Tensors, written: Mapping[str, Path]) -> None:
    if missing := sorted(expected.keys() - written.keys()):
        raise ExportFailed(f"the exported model lacks {len(missing)} tensors, the first is {missing[0]}")
    if surplus := sorted(written.keys() - expected.keys()):
        raise ExportFailed(f"the exported model has {len(surplus)} tensors too many, the first is {surplus[0]}")
    for path in sorted(set(written.values())):
        with safe_open(path, framework="pt") as file:
            for name in file.keys():  # noqa: SIM118  (it is no dict)
                _check_one(name, expected[name], file.get_tensor(name))


def _check_loaded(model: PreTrainedModel, directory: Path, *, trust_remote_code: bool) -> None:
    loaded = type(model).from_pretrained(directory, dtype=model.dtype, trust_remote_code=trust_remote_code)
    found = loaded.state_dict()
    for name, tensor in model.state_dict().items():
        if name not in found:
            raise ExportFailed(f"the exported model lacks {name}")
        _check_one(name, tensor, found[name])


def _check_one(name: str, expected: torch.Tensor, found: torch.Tensor) -> None:
    if not bitwise_equal(expected, found):
        raise ExportFailed(f"the exported tensor {name} is not the trained one: read again, it differs")
