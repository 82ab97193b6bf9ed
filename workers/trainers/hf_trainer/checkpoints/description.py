"""What a checkpoint that is divided among ranks says of its model, so that other jobs can use its weights."""

from collections.abc import Iterable, Sequence
from copy import deepcopy
from pathlib import Path
from typing import Protocol

from peft import PeftModel
from transformers import PreTrainedModel

_SHARDED = "FSDP"  # which FSDP2 puts before the name of a model's class


class Description(Protocol):
    """A configuration, which is a file of its own."""

    def save_pretrained(self, save_directory: str) -> object: ...


def description(model: PreTrainedModel | PeftModel) -> Sequence[Description]:
    """The configurations that ``save_pretrained`` of the model, or of its adapter, would write."""
    if isinstance(model, PeftModel):
        adapter = deepcopy(model.peft_config[model.active_adapter])
        adapter.inference_mode = True
        adapter.base_model_name_or_path = None  # a path of this node
        return [adapter]
    config = deepcopy(model.config)
    config.architectures = [type(model).__name__.removeprefix(_SHARDED)]
    config.dtype = model.dtype
    config.use_cache = True  # which a training disables, and generation needs
    return [config, deepcopy(model.generation_config)] if model.can_generate() else [config]


def write_description(described: Iterable[Description], directory: Path) -> None:
    for each in described:
        each.save_pretrained(str(directory))
