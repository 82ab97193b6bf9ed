"""export_format pytorch: the state_dict in pytorch_model.bin, written with `torch.save`."""

from pathlib import Path

import torch
from safetensors.torch import load_file
from transformers import PreTrainedTokenizerBase

from workers.trainers.bitwise import bitwise_equal
from workers.trainers.failures import ExportFailed
from workers.trainers.hf_trainer.formats.convert import weights

FILE = "pytorch_model.bin"


def convert(directory: Path, _tokenizer: PreTrainedTokenizerBase) -> None:
    """Raises ExportFailed."""
    tensors = {name: tensor for file in weights(directory) for name, tensor in load_file(file).items()}
    torch.save(tensors, directory / FILE)
    # Loaded as transformers loads it: only tensors are accepted, and each is mapped into memory only while it is
    # compared.
    found = torch.load(directory / FILE, weights_only=True, mmap=True, map_location="cpu")
    for name, tensor in tensors.items():
        if name not in found or not bitwise_equal(tensor, found[name]):
            raise ExportFailed(f"the tensor {name} in {FILE} is not the trained one: read again, it differs")
