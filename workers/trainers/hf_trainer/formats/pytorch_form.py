"""export_format pytorch: the weights as `torch.save` writes a state_dict, in pytorch_model.bin."""

from pathlib import Path

import torch
from safetensors.torch import load_file
from transformers import PreTrainedTokenizerBase

from workers.trainers.failures import ExportFailed
from workers.trainers.hf_trainer.formats.converting import weights
from workers.trainers.hf_trainer.model.verify_export import same_bits

FILE = "pytorch_model.bin"


def convert(directory: Path, _tokenizer: PreTrainedTokenizerBase) -> None:
    """Raises ExportFailed."""
    tensors = {name: tensor for file in weights(directory) for name, tensor in load_file(file).items()}
    torch.save(tensors, directory / FILE)
    # As transformers reads it: what is no tensor is refused, and a tensor is in memory while it is looked at.
    found = torch.load(directory / FILE, weights_only=True, mmap=True, map_location="cpu")
    for name, tensor in tensors.items():
        if name not in found or not same_bits(tensor, found[name]):
            raise ExportFailed(f"the tensor {name} in {FILE} is not the trained one: read again, it differs")
