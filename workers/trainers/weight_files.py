"""Writes weights as the files that transformers and peft read, without ever holding all of them."""

import json
import re
from collections.abc import Iterable
from pathlib import Path

import torch
from safetensors.torch import save_file
from transformers.utils import SAFE_WEIGHTS_INDEX_NAME

FILE_BYTES = 1 << 30  # of a file, unless one tensor is larger
_ADAPTER = "adapter_model.safetensors"
_METADATA = {"format": "pt"}
# peft puts the adapter's name behind what belongs to it, and leaves it out in files.
_OF_ADAPTER = re.compile(r"\.(?:modules_to_save(?=\.)|(?P<part>lora_\w+))\.default(?=\.|$)")
_MAGNITUDE = ".lora_magnitude_vector"  # of DoRA: a parameter in files, although a module with a weight in models
_BIAS = ".bias"  # which `lora_bias` may train where it is

Weights = Iterable[tuple[str, torch.Tensor]]


def write_model(weights: Weights, directory: Path, *, file_bytes: int = FILE_BYTES) -> None:
    """Write one file after the other, and the index of them; at most ``file_bytes`` and one tensor are in memory."""
    files: dict[str, str] = {}
    held: dict[str, torch.Tensor] = {}
    total = size = number = 0
    for name, tensor in weights:
        if held and size + tensor.nbytes > file_bytes:
            files |= _written(held, directory, number)
            held, size, number = {}, 0, number + 1
        held[name] = tensor
        size += tensor.nbytes
        total += tensor.nbytes
    files |= _written(held, directory, number)
    index = {"metadata": {"total_size": total}, "weight_map": files}
    (directory / SAFE_WEIGHTS_INDEX_NAME).write_text(json.dumps(index, indent=1), encoding="utf-8")


def write_adapter(weights: Weights, directory: Path) -> None:
    """Write the weights of an adapter, which are small, under the names that peft gives them in files."""
    # Heads that are tied to embeddings may be among the trained weights although they are the base model's.
    own = ((name, tensor) for name, tensor in weights if _OF_ADAPTER.search(name) or name.endswith(_BIAS))
    held = {_in_file(name): tensor for name, tensor in own}
    save_file(held, directory / _ADAPTER, metadata=_METADATA)


def _written(held: dict[str, torch.Tensor], directory: Path, number: int) -> dict[str, str]:
    """The file of each weight."""
    file = f"model-{number + 1:05}.safetensors"
    save_file(held, directory / file, metadata=_METADATA)
    return dict.fromkeys(held, file)


def _in_file(name: str) -> str:
    found = _OF_ADAPTER.sub(lambda match: f".{match['part']}" if match["part"] else "", name)
    return found.removesuffix(".weight") if found.endswith(f"{_MAGNITUDE}.weight") else found
