"""export_format onnx: the model's graph from tokens to logits, exported by torch and verified with onnxruntime.

Inputs `input_ids` and `attention_mask`, output `logits`; batch and length are dynamic. The graph computes in float32
and has no KV cache.
"""

import warnings
from pathlib import Path

import onnx_ir
import onnxruntime
import torch
from torch import nn
from transformers import AutoModelForCausalLM, PreTrainedModel, PreTrainedTokenizerBase

from workers.trainers.failures import ExportFailed
from workers.trainers.hf_trainer.formats.convert import weights

FILE, DATA = "model.onnx", "model.onnx_data"
_MOST_BYTES = 1_500_000_000  # one-file limit: protobuf allows 2 GB
_FREE = torch.export.Dim.AUTO
_SHAPES = ((2, 7), (1, 1), (3, 12))  # shapes to compare; the graph is traced with the first
_TOLERANCE = 1e-3


class _Logits(nn.Module):
    """The exported module: two inputs, one output."""

    def __init__(self, model: PreTrainedModel) -> None:
        super().__init__()
        self.model = model

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        found = self.model(input_ids=input_ids, attention_mask=attention_mask, use_cache=False)
        logits: torch.Tensor = found.logits
        return logits


def convert(directory: Path, _tokenizer: PreTrainedTokenizerBase) -> None:
    """Raises ExportFailed."""
    # Loaded separately on the CPU, because the trained model may be on a GPU or sharded.
    model = _Logits(AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32)).eval()
    inputs = _inputs(model, _SHAPES[0])
    free = {0: _FREE, 1: _FREE}
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch warns about itself
        program = torch.onnx.export(
            model,
            inputs,
            dynamo=True,
            verbose=False,
            input_names=["input_ids", "attention_mask"],
            output_names=["logits"],
            dynamic_shapes=(free, dict(free)),
        )
    if program is None:
        raise ExportFailed("torch made no ONNX graph of the model; use export_format safetensors")
    large = sum(file.stat().st_size for file in weights(directory)) > _MOST_BYTES
    onnx_ir.save(program.model, directory / FILE, external_data=DATA if large else None)
    _verify(model, directory / FILE)


def _inputs(model: _Logits, shape: tuple[int, int]) -> tuple[torch.Tensor, torch.Tensor]:
    vocabulary = model.model.config.get_text_config().vocab_size
    tokens = torch.arange(shape[0] * shape[1]).reshape(shape) % vocabulary
    mask = torch.ones_like(tokens)
    mask[0, 1 + shape[1] // 2 :] = 0
    return tokens, mask


def _verify(model: _Logits, file: Path) -> None:
    session = onnxruntime.InferenceSession(str(file), providers=["CPUExecutionProvider"])
    for shape in _SHAPES:
        tokens, mask = _inputs(model, shape)
        (found,) = session.run(None, {"input_ids": tokens.numpy(), "attention_mask": mask.numpy()})
        with torch.no_grad():
            expected = model(tokens, mask)
        seen = mask.bool()
        if not torch.allclose(torch.from_numpy(found)[seen], expected[seen], rtol=_TOLERANCE, atol=_TOLERANCE):
            raise ExportFailed("onnxruntime computes other logits than torch; use export_format safetensors")
