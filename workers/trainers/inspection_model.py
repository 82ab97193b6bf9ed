"""Inspects a base model: its configuration, the completeness of its weight files, its tokenizer."""

import json
from pathlib import Path
from typing import Any

from transformers import AutoConfig, PretrainedConfig, PreTrainedTokenizerBase
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

from app.domain.spec.frameworks.megatron import MEGATRON
from app.domain.spec.rules.model import is_drawn
from app.domain.spec.rules.output import GGUF, ONNX
from workers.rank.run_context import RunSpec
from workers.rank.spec_sections import data_config, output_config
from workers.trainers.failures import InvalidConfig, ModelNotFound
from workers.trainers.hf_trainer.formats import gguf_rules
from workers.trainers.hf_trainer.model.tokenizer import base_model, existing_model_path, load_tokenizer, trust_options
from workers.trainers.megatron.compatibility import check as check_megatron
from workers.trainers.megatron.compatibility import requested_layout

_CAUSAL = "AutoModelForCausalLM"
# Families whose graphs were exported and compared with torch.
ONNX_FAMILIES = (
    "llama",
    "mistral",
    "qwen2",
    "qwen3",
    "gemma",
    "gemma2",
    "phi3",
    "gpt2",
    "gpt_neox",
    "olmo2",
    "granite",
    "smollm3",
)
_INDEX = "model.safetensors.index.json"
_WEIGHTS = ("*.safetensors", "*.bin", "*.pt", "*.pth")
_MOST_HEADER_BYTES = 100 << 20

Findings = dict[str, Any]


def inspect_model(spec: RunSpec, findings: Findings, *, has_weights: bool) -> PreTrainedTokenizerBase:
    """The tokenizer. Raises ModelNotFound and InvalidConfig."""
    drawn = is_drawn(base_model(spec))
    config = _definition(spec, findings) if drawn else _config(spec, Path(existing_model_path(spec.model_path)))
    _check_causal(config, trusted=trust_options(spec)["trust_remote_code"])
    if spec.framework == MEGATRON:
        check_megatron(config, requested_layout(spec), data_config(spec).max_seq_length)
    if has_weights and not drawn:
        check_weights(Path(spec.model_path))
    tokenizer = load_tokenizer(spec)
    _check_form(spec, config, tokenizer)
    text = config.get_text_config()
    findings["model"] = {
        "model_type": config.model_type,
        "architectures": list(config.architectures or ()),
        "vocab_size": getattr(text, "vocab_size", None),
        "max_position_embeddings": _positions(spec, text),
        "tokenizer_size": len(tokenizer),
    }
    findings["warnings"] += _oddities(spec, text, tokenizer)
    return tokenizer


def check_weights(directory: Path) -> None:
    """Check by their headers that all weight files exist and are complete. Raises ModelNotFound naming the file."""
    index = directory / _INDEX
    if index.exists():
        names = sorted(set(_json(index).get("weight_map", {}).values()))
        for name in names:
            if not (directory / name).exists():
                raise ModelNotFound(f"the base model lacks {name}, which {_INDEX} names: copy the missing file")
    files = {pattern: sorted(directory.glob(pattern)) for pattern in _WEIGHTS}
    if not any(files.values()):
        raise ModelNotFound(f"the base model in {directory.name} has no weights: there is no {' or '.join(_WEIGHTS)}")
    for file in files[_WEIGHTS[0]]:
        _check_safetensors(file)


def _config(spec: RunSpec, directory: Path) -> PretrainedConfig:
    remote = trust_options(spec)
    document = _json(directory / "config.json") if (directory / "config.json").exists() else None
    if document is None:
        raise ModelNotFound(f"the base model in {directory.name} has no config.json")
    try:
        config: PretrainedConfig = AutoConfig.from_pretrained(directory, **remote)
    except Exception as error:  # transformers passes on any exception of its parts
        if document.get("auto_map") and not remote["trust_remote_code"]:
            raise InvalidConfig(
                f"the base model in {directory.name} brings its own code; set base_model.trust_remote_code to run it"
            ) from error
        raise ModelNotFound(f"config.json of the base model in {directory.name} can't be loaded: {error}") from error
    return config


def _definition(spec: RunSpec, findings: Findings) -> PretrainedConfig:
    """The configuration of a model trained from scratch; building it is tried without memory for its weights."""
    from workers.trainers.hf_trainer.model import scratch  # noqa: PLC0415  torch, which others are looked at without

    config = scratch.configuration(spec, load_tokenizer(spec))
    scratch.check_buildable(config, spec)
    findings["warnings"] += [
        f"from_config.{name} is unknown to a model of type {config.model_type} and has no effect"
        for name in scratch.unknown_fields(spec)
    ]
    return config


def _check_form(spec: RunSpec, config: PretrainedConfig, tokenizer: PreTrainedTokenizerBase) -> None:
    """Check that the trained model can be exported as requested. Raises InvalidConfig."""
    form = output_config(spec).export_format
    if form == ONNX and config.model_type not in ONNX_FAMILIES:
        raise InvalidConfig(
            f"export_format onnx supports models of type {', '.join(ONNX_FAMILIES)}, and this one is a "
            f"{config.model_type}; use safetensors"
        )
    if form == GGUF:
        try:
            gguf_rules.check(config, tokenizer)
        except gguf_rules.GgufUnsupported as error:
            raise InvalidConfig(str(error)) from error


def _check_causal(config: PretrainedConfig, *, trusted: bool) -> None:
    if config.model_type in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES:
        return
    if trusted and _CAUSAL in (getattr(config, "auto_map", None) or {}):
        return
    raise InvalidConfig(
        f"the base model is a {', '.join(config.architectures or ()) or config.model_type}, no causal language model "
        "that transformers knows; choose one that generates text"
    )


def _oddities(spec: RunSpec, config: PretrainedConfig, tokenizer: PreTrainedTokenizerBase) -> list[str]:
    found = []
    if tokenizer.pad_token_id == tokenizer.unk_token_id is not None:
        found.append(f"the tokenizer pads with its unknown token {tokenizer.pad_token!r}")
    ends = _ids(getattr(config, "eos_token_id", None))
    if ends and tokenizer.eos_token_id not in ends:
        found.append(
            f"the tokenizer ends texts with {tokenizer.eos_token!r} (id {tokenizer.eos_token_id}), the model's config "
            f"says id {', '.join(map(str, sorted(ends)))}: the trained model may not stop when it generates"
        )
    vocabulary = getattr(config, "vocab_size", None)
    if vocabulary is not None and len(tokenizer) > vocabulary:
        found.append(f"the tokenizer has {len(tokenizer)} tokens, the model {vocabulary}: it gets new embeddings")
    if (
        spec.hyperparameters.get("packing")
        and trust_options(spec)["trust_remote_code"]
        and getattr(config, "auto_map", None)
    ):
        # Models of transformers distinguish packed records by position_ids, with every attention implementation.
        found.append(
            "packing with a model that brings its own code: unless that uses position_ids, records in one block "
            "attend to each other"
        )
    return found


def _positions(spec: RunSpec, config: PretrainedConfig) -> int | None:
    changes = base_model(spec).model_kwargs
    positions: int | None = changes.get("max_position_embeddings") or getattr(config, "max_position_embeddings", None)
    return positions


def _ids(value: int | list[int] | None) -> set[int]:
    if value is None:
        return set()
    return set(value) if isinstance(value, list) else {value}


def _json(path: Path) -> dict[str, Any]:
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ModelNotFound(f"{path.name} of the base model can't be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise ModelNotFound(f"{path.name} of the base model is not JSON: {error}") from error
    if not isinstance(document, dict):
        raise ModelNotFound(f"{path.name} of the base model is not a JSON object")
    return document


def _check_safetensors(file: Path) -> None:
    """The header determines the file size: 8 bytes of length, the header, the tensors."""
    try:
        size = file.stat().st_size
        with file.open("rb") as stream:
            start = stream.read(8)
            if start == b"version ":
                raise ModelNotFound(f"{file.name} is a Git LFS pointer, not the weights: fetch them (git lfs pull)")
            length = int.from_bytes(start, "little")
            if len(start) < 8 or length > min(size, _MOST_HEADER_BYTES):
                raise ModelNotFound(f"{file.name} of the base model is not a safetensors file, or is truncated")
            header = json.loads(stream.read(length))
        ends = [tensor["data_offsets"][1] for name, tensor in header.items() if name != "__metadata__"]
    except OSError as error:
        raise ModelNotFound(f"{file.name} of the base model can't be read: {error.strerror}") from error
    except (ValueError, KeyError, TypeError, AttributeError, IndexError, RecursionError) as error:
        raise ModelNotFound(f"{file.name} of the base model is damaged: its header can't be read") from error
    expected = 8 + length + max(ends, default=0)
    if size != expected:
        raise ModelNotFound(f"{file.name} of the base model has {size} bytes instead of {expected}: copy it again")
