"""The writer of a job by its output.format."""

from collections.abc import Callable, Mapping

from transformers import AutoConfig

from app.domain.spec.inference import EMBED, REQUESTS, Inference
from workers.rank.run_context import RunSpec
from workers.trainers.failures import InvalidConfig
from workers.trainers.hf_trainer.model.tokenizer import trust_options
from workers.trainers.inference.inputs import Inputs
from workers.trainers.inference.pooling import pooling_of
from workers.trainers.inference.section import inference_of, model_directory
from workers.trainers.inference.tasks.columns import columns_of
from workers.trainers.inference.writers.json_lines import JsonLines
from workers.trainers.inference.writers.kept_columns import kept_columns
from workers.trainers.inference.writers.matrices import NumpyMatrix, SafetensorsMatrices
from workers.trainers.inference.writers.request_lines import RequestLines
from workers.trainers.inference.writers.tables import Tables
from workers.trainers.inference.writers.writer import PartWriter, VectorForm

_JSONL, _PARQUET, _ARROW, _NPY, _SAFETENSORS = "jsonl", "parquet", "arrow", "npy", "safetensors"
_MATRICES: Mapping[str, Callable[[VectorForm], PartWriter]] = {_NPY: NumpyMatrix, _SAFETENSORS: SafetensorsMatrices}
_OWN_COLUMNS = ("index", "prompt_tokens", "completion_tokens", "error")
_BFLOAT16 = "bfloat16"


def writer_of(spec: RunSpec, inputs: Inputs) -> PartWriter:
    """Raises InvalidConfig, and what reading the records raises."""
    section = inference_of(spec)
    _check(section)
    format_, columns = section.output.format, columns_of(section.task)
    if section.task.type == REQUESTS:
        return RequestLines()
    if format_ == _JSONL:
        return JsonLines(columns)
    form = _vector_form(spec)
    if format_ in _MATRICES:
        return _MATRICES[format_](form)
    return Tables(format_, columns, kept_columns(inputs, section.output.keep_columns), form)


def _check(section: Inference) -> None:
    format_, keep = section.output.format, section.output.keep_columns
    if format_ not in (_JSONL, _PARQUET, _ARROW, *_MATRICES):
        known = ", ".join((_JSONL, _PARQUET, _ARROW, *_MATRICES))
        raise InvalidConfig(f"output.format {format_!r} is not one of {known}")
    if format_ in _MATRICES and section.task.type != EMBED:
        raise InvalidConfig(f"output.format {format_} holds vectors only; use {_PARQUET} or {_JSONL}")
    if format_ in _MATRICES and keep:
        raise InvalidConfig(f"output.keep_columns: format {format_} holds vectors only; use {_PARQUET}")
    if section.task.type == REQUESTS and format_ != _JSONL:
        raise InvalidConfig(f"output.format {format_}: answers to requests are written as {_JSONL}")
    if section.task.type == EMBED and section.task.dtype == _BFLOAT16 and format_ != _SAFETENSORS:
        raise InvalidConfig(f"task.dtype {_BFLOAT16} needs output.format {_SAFETENSORS}; others use float32 or float16")
    if taken := [name for name in keep if name in (*_OWN_COLUMNS, *columns_of(section.task))]:
        raise InvalidConfig(
            f"output.keep_columns: the output has a column {taken[0]} of its own; leave it out, or rename it"
        )


def _vector_form(spec: RunSpec) -> VectorForm:
    task = inference_of(spec).task
    if task.type != EMBED:
        return VectorForm("float32", 0)
    config = AutoConfig.from_pretrained(model_directory(spec), **trust_options(spec)).get_text_config()
    return VectorForm(task.dtype, int(config.hidden_size), each_token=pooling_of(spec).kind == "none")
