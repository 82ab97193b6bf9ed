"""Reads the weights of a checkpoint that FSDP has divided, one after the other."""

from collections.abc import Iterator
from pathlib import Path

import torch

from workers.trainers.stored_tensors import StoredTensors

SHARDS = "shards"  # the directory of a checkpoint with what the ranks have written
_MODEL = "model."


def whole_weights(checkpoint: Path) -> Iterator[tuple[str, torch.Tensor]]:
    """Each trained weight with its name in the model. Raises what torch raises for damaged files."""
    stored = StoredTensors(checkpoint / SHARDS)
    for name in stored:
        if name.startswith(_MODEL):
            yield name.removeprefix(_MODEL), stored.whole(name)
