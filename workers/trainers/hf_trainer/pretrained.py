"""The base model and its tokenizer, loaded in the precision the job asks for."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase

from workers.run_context import RunSpec
from workers.trainers.failures import InvalidConfig, ModelNotFound

_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


@dataclass(frozen=True)
class Precision:
    """`weights`: what parameters are kept and updated in; `bf16`, `fp16`: what is computed in on a GPU."""

    weights: torch.dtype
    bf16: bool = False
    fp16: bool = False
    note: str = ""  # what the job's log should say about it


def _computes_bf16() -> bool:
    return bool(torch.cuda.is_bf16_supported(including_emulation=False))


def precision(spec: RunSpec, *, computes_bf16: Callable[[], bool] = _computes_bf16) -> Precision:
    """float32 weights unless the job says bfloat16; a GPU computes in bfloat16 where it can without emulating it.

    Weights are never float16: an update of them would mostly round to nothing. A job that says
    float16 gets float32 weights and float16 computation.
    """
    asked = str(_base_model(spec).get("dtype") or "auto").removeprefix("torch.")
    asked = {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32"}.get(asked, asked)
    if asked != "auto" and asked not in _DTYPES:
        raise InvalidConfig(f"base_model.dtype {asked!r} is not one of auto, {', '.join(_DTYPES)}")
    weights = torch.bfloat16 if asked == "bfloat16" else torch.float32
    if spec.device_type != "cuda":
        return Precision(weights)
    bf16 = asked in ("auto", "bfloat16") and computes_bf16()
    note = ""
    if asked == "auto" and not bf16:
        note = "this GPU has no bfloat16: computing in float32; base_model.dtype float16 would be faster"
    return Precision(weights, bf16=bf16, fp16=asked == "float16", note=note)


def load_model(spec: RunSpec, path: str | None = None) -> PreTrainedModel:
    """The base model, or the one of a checkpoint at `path`. Raises ModelNotFound."""
    directory = _existing(path or spec.model_path)
    options: dict[str, Any] = {**(_base_model(spec).get("model_kwargs") or {}), **_trust(spec)}
    options["dtype"] = precision(spec).weights
    model: PreTrainedModel = AutoModelForCausalLM.from_pretrained(directory, **options)
    return model


def load_tokenizer(spec: RunSpec) -> PreTrainedTokenizerBase:
    """The tokenizer the job names, else the base model's. Raises ModelNotFound and InvalidConfig."""
    directory = _existing(spec.tokenizer_path or spec.model_path)
    tokenizer: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(directory, **_trust(spec))
    if tokenizer.eos_token is None:
        raise InvalidConfig("the tokenizer has no end-of-sequence token, so the model could not learn to stop")
    return tokenizer


def _existing(path: str) -> str:
    if not (Path(path) / "config.json").exists() and not (Path(path) / "tokenizer_config.json").exists():
        raise ModelNotFound(f"{path or 'no path'} holds no model: there is no config.json in it")
    return path


def _base_model(spec: RunSpec) -> dict[str, Any]:
    return dict(spec.training_config.get("base_model") or {})


def _trust(spec: RunSpec) -> dict[str, bool]:
    return {"trust_remote_code": bool(_base_model(spec).get("trust_remote_code"))}
