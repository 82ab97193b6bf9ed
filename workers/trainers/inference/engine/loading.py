"""Loads the model and the tokenizer of an inference job: a base model, another job's weights, or an adapter of one."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from peft import PeftModel, get_peft_model_state_dict, load_peft_weights
from safetensors import SafetensorError, safe_open
from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForCausalLM,
    AutoModelForSequenceClassification,
    PretrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)

from app.domain.spec.inference import SCORE, Inference
from workers.rank.run_context import RunSpec
from workers.trainers.failures import InvalidConfig, ModelNotFound, is_out_of_memory
from workers.trainers.hf_trainer.model.pretrained import change_config, precision
from workers.trainers.hf_trainer.model.tokenizer import base_model, existing_model_path, read_tokenizer, trust_options
from workers.trainers.inference.engine.embedding import own_length

GENERATOR, CLASSIFIER, ENCODER = "generator", "classifier", "encoder"  # Loaded.kind
_CLASSES: dict[str, Any] = {
    GENERATOR: AutoModelForCausalLM,
    CLASSIFIER: AutoModelForSequenceClassification,
    ENCODER: AutoModel,
}
ADAPTER_CONFIG = "adapter_config.json"
ADAPTER_WEIGHTS = "adapter_model.safetensors"
_CLASSIFIES = "ForSequenceClassification"
_NO_LIMIT = 1 << 20  # tokens, for models whose positions have none
_NONE, _FOUR_BITS = "none", "bnb-4bit"  # ModelReference.quantization


@dataclass(frozen=True)
class Loaded:
    """A model ready for use; ``directory`` has its configuration, ``kind`` says which heads it has."""

    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    kind: str
    directory: Path


def load(spec: RunSpec) -> Loaded:
    """The model that the job names, on this rank's device. Raises ModelNotFound and InvalidConfig."""
    section = Inference.from_json(spec.inference)
    adapter = Path(existing_adapter(spec.weights_path)) if section.model.adapter else None
    directory = existing_model_path(spec.model_path if adapter or not spec.weights_path else spec.weights_path)
    config = _configuration(spec, directory)
    kind = _kind(section, config, adapter)
    tokenizer = _tokenizer(spec, adapter or Path(directory))
    model = _model(spec, directory, kind, config, adapter)
    if adapter is not None:
        model = _adapted(model, tokenizer, adapter)
    model.config.pad_token_id = tokenizer.pad_token_id
    model.requires_grad_(False)
    model.train(mode=False)
    return Loaded(model, tokenizer, kind, Path(directory))


@dataclass(frozen=True)
class Described:
    """A model without its weights; ``context``: most tokens of prompt and answer together."""

    tokenizer: PreTrainedTokenizerBase
    context: int
    vocabulary: int


def describe(spec: RunSpec) -> Described:
    """The model that the job names, of which nothing is loaded. Raises ModelNotFound and InvalidConfig."""
    section = Inference.from_json(spec.inference)
    adapter = Path(existing_adapter(spec.weights_path)) if section.model.adapter else None
    directory = existing_model_path(spec.model_path if adapter or not spec.weights_path else spec.weights_path)
    config = _configuration(spec, directory)
    tokenizer = _tokenizer(spec, adapter or Path(directory))
    context = _context_length(config, _kind(section, config, adapter), tokenizer, Path(directory))
    return Described(tokenizer, context, int(config.get_text_config().vocab_size))


def context_length(loaded: Loaded) -> int:
    """Most tokens that the model reads."""
    return _context_length(loaded.model.config, loaded.kind, loaded.tokenizer, loaded.directory)


def _context_length(config: PretrainedConfig, kind: str, tokenizer: PreTrainedTokenizerBase, directory: Path) -> int:
    text = config.get_text_config()
    positions = getattr(text, "max_position_embeddings", None) or getattr(text, "n_positions", None) or _NO_LIMIT
    if kind == GENERATOR:
        return int(positions)
    # Encoders may keep positions for themselves, and say only in their tokenizer how many are left.
    own = own_length(directory) if kind == ENCODER else None
    return int(min(positions, tokenizer.model_max_length, own or positions))


def existing_adapter(path: str) -> str:
    """`path` if it holds an adapter. Raises ModelNotFound."""
    if not (Path(path) / ADAPTER_CONFIG).is_file():
        raise ModelNotFound(f"{path or 'no path'} holds no adapter: there is no {ADAPTER_CONFIG} in it")
    return path


def device_of(spec: RunSpec) -> torch.device:
    """The device of this rank."""
    return torch.device("cuda", torch.cuda.current_device()) if spec.device_type == "cuda" else torch.device("cpu")


def dtype_of(spec: RunSpec) -> torch.dtype:
    """The dtype that a training with this model computes in."""
    found = precision(spec)
    return torch.bfloat16 if found.bf16 else torch.float16 if found.fp16 else found.weights


def _kind(section: Inference, config: PretrainedConfig, adapter: Path | None) -> str:
    """What the task needs; an evaluation takes what the model is."""
    if section.benchmarks:
        return CLASSIFIER if _classifies(config, adapter) else GENERATOR
    if section.task.makes_vectors:
        # An adapter belongs to a model with a head.
        return ENCODER if adapter is None else CLASSIFIER if _classifies(config, adapter) else GENERATOR
    return CLASSIFIER if section.task.type == SCORE else GENERATOR


def _classifies(config: PretrainedConfig, adapter: Path | None) -> bool:
    if adapter is not None:
        return bool(json.loads((adapter / ADAPTER_CONFIG).read_text()).get("task_type") == "SEQ_CLS")
    return any(name.endswith(_CLASSIFIES) for name in config.architectures or ())


def _tokenizer(spec: RunSpec, directory: Path) -> PreTrainedTokenizerBase:
    """The one stored with the weights, else the job's; it pads with any special token, which is masked."""
    stored = (directory / "tokenizer_config.json").is_file() and not (spec.tokenizer_path and not spec.weights_path)
    tokenizer = read_tokenizer(spec, str(directory) if stored else spec.tokenizer_path or spec.model_path)
    ensure_padding(tokenizer)
    return tokenizer


def ensure_padding(tokenizer: PreTrainedTokenizerBase) -> None:
    """Any special token pads, because padding is masked."""
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token or tokenizer.sep_token or tokenizer.unk_token


def _configuration(spec: RunSpec, directory: str) -> PretrainedConfig:
    try:
        config: PretrainedConfig = AutoConfig.from_pretrained(directory, **trust_options(spec))
    except (ImportError, KeyError, OSError, TypeError, ValueError) as error:
        raise ModelNotFound(f"the model in {Path(directory).name} can't be loaded: {error}") from error
    kwargs = {name: value for name, value in base_model(spec).model_kwargs.items() if name != "attn_implementation"}
    change_config(config, kwargs)
    return config


def _model(spec: RunSpec, directory: str, kind: str, config: PretrainedConfig, adapter: Path | None) -> PreTrainedModel:
    name = Path(directory).name
    if kind == CLASSIFIER and adapter is not None:
        config.num_labels = _labels_of(adapter) or config.num_labels or 1
    try:
        model, loading = _CLASSES[kind].from_pretrained(
            directory,
            config=config,
            dtype=dtype_of(spec),
            attn_implementation=base_model(spec).model_kwargs.get("attn_implementation"),
            output_loading_info=True,
            **trust_options(spec),
            **_quantization(spec),
        )
    except (ImportError, KeyError, OSError, RuntimeError, SafetensorError, TypeError, ValueError) as error:
        if is_out_of_memory(error):
            raise
        raise ModelNotFound(f"the model in {name} can't be loaded: {error}") from error
    if adapter is None:
        _check_complete(loading["missing_keys"], kind, name)
    found: PreTrainedModel = model
    return found if hasattr(found, "hf_quantizer") else found.to(device_of(spec))  # type: ignore[arg-type]


def _check_complete(missing: set[str], kind: str, name: str) -> None:
    """Weights that the files lack would be random numbers."""
    wanted = sorted(each for each in missing if not (kind == ENCODER and "pooler" in each))
    if not wanted:
        return
    if kind == CLASSIFIER:
        raise InvalidConfig(
            f"task.type score: the model in {name} has no head that gives scores ({wanted[0]} is missing); name a "
            "reward model or a sequence classifier"
        )
    raise ModelNotFound(f"the model in {name} is incomplete: {wanted[0]} is missing")


def _labels_of(adapter: Path) -> int:
    """The number of labels of the head that is stored with the adapter; 0: there is none."""
    with safe_open(adapter / ADAPTER_WEIGHTS, framework="pt") as file:
        heads = [name for name in file.keys() if name.endswith(("score.weight", "classifier.weight"))]  # noqa: SIM118  (it is no dict)
        return int(file.get_slice(heads[0]).get_shape()[0]) if heads else 0


def _adapted(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, adapter: Path) -> PreTrainedModel:
    """The base model with the adapter's layers inside; they are not merged, so that its numbers are the training's."""
    # Embeddings of tokens that the training has added are stored with the adapter.
    if len(tokenizer) > int(model.get_input_embeddings().num_embeddings):  # type: ignore[arg-type]
        model.resize_token_embeddings(len(tokenizer))
    try:
        found: Any = PeftModel.from_pretrained(model, str(adapter))
        stored = load_peft_weights(str(adapter), device="cpu")
    except (KeyError, OSError, RuntimeError, SafetensorError, TypeError, ValueError) as error:
        if is_out_of_memory(error):
            raise
        raise ModelNotFound(f"the adapter can't be loaded on the base model: {error}") from error
    # peft leaves what the file lacks as it was initialized.
    if missing := sorted({*get_peft_model_state_dict(found, save_embedding_layers=False)} - {*stored}):
        raise ModelNotFound(f"the adapter is incomplete: {missing[0]} is missing")
    adapted: PreTrainedModel = found.get_base_model()
    return adapted


def _quantization(spec: RunSpec) -> dict[str, Any]:
    asked = Inference.from_json(spec.inference).model.quantization
    if asked == _NONE:
        return {}
    if asked != _FOUR_BITS:
        raise InvalidConfig(f"model.quantization {asked!r} is not one of {_NONE}, {_FOUR_BITS}")
    if spec.device_type != "cuda":
        raise InvalidConfig(
            "model.quantization bnb-4bit needs a GPU; ask for one in resource_config.gpu_count, or leave it out"
        )
    from transformers import BitsAndBytesConfig  # noqa: PLC0415  (only GPUs have its kernels)

    config = BitsAndBytesConfig(  # type: ignore[no-untyped-call]
        load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_compute_dtype=dtype_of(spec)
    )
    return {"quantization_config": config, "device_map": {"": device_of(spec)}}
