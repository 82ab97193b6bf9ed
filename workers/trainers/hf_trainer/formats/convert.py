"""Converts an exported directory of safetensors to the requested export format and removes the safetensors."""

import importlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

from transformers import PreTrainedTokenizerBase

from app.domain.spec.rules.output import GGUF, ONNX, PYTORCH
from workers.trainers.failures import ExportFailed

Convert = Callable[[Path, PreTrainedTokenizerBase], None]

# Imported by name: each needs its own libraries.
_CONVERTERS = {
    PYTORCH: "workers.trainers.hf_trainer.formats.pytorch_form",
    GGUF: "workers.trainers.hf_trainer.formats.gguf_form",
    ONNX: "workers.trainers.hf_trainer.formats.onnx_form",
}


def convert(form: str | None, directory: Path, tokenizer: PreTrainedTokenizerBase) -> None:
    """Do nothing for a format that needs no conversion. Raises ExportFailed."""
    if form not in _CONVERTERS:
        return
    try:
        made = cast("Convert", importlib.import_module(_CONVERTERS[form]).convert)
    except ModuleNotFoundError as error:
        raise ExportFailed(f"{form} needs a library that this node lacks: pip install 'trainyard[export]'") from error
    made(directory, tokenizer)
    for file in (*directory.glob("*.safetensors"), *directory.glob("*.safetensors.index.json")):
        file.unlink()


def weights(directory: Path) -> list[Path]:
    """The safetensors files of an exported model."""
    return sorted(directory.glob("*.safetensors"))


def config(directory: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((directory / "config.json").read_text(encoding="utf-8"))
    return found
