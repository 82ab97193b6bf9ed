"""Rules of ``training_config.base_model``: location and loading of the model."""

import re
from collections.abc import Callable, Mapping
from typing import Any

from app.domain.errors import BadSpec, NotSupportedYet
from app.domain.spec.document import asks_for_gpus, is_custom, trainer
from app.domain.spec.locations.paths import FILE, NO_MODEL, is_hub_id, kind_of
from app.domain.spec.model import BaseModel, JobDocument
from app.domain.spec.quoting import quoted
from app.domain.suggestions import did_you_mean

DTYPES = ("auto", "float32", "bfloat16", "float16")
ATTENTIONS = ("eager", "sdpa", "flash_attention_2")
HUB, LOCAL, HF = "hub", "local", "hf"

# Trainers that can start from random weights.
FROM_SCRATCH = tuple(("HF_TRAINER", kind) for kind in ("SFT", "FULL_FINETUNE", "CONTINUED_PRETRAIN"))

_MODEL = "training_config.base_model"
_FROM_CONFIG = f"{_MODEL}.from_config"
_REVISION = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/-]{0,254}")


def base_model_is_named(document: JobDocument) -> None:
    if not document.training_config.base_model.model_id.strip():
        raise BadSpec(
            "model_id must not be empty; name a model of the hub, a directory below one of the storage roots, or the "
            "URI of one",
            field=f"{_MODEL}.model_id",
        )


def source_fits_the_model(document: JobDocument) -> None:
    """``source`` disambiguates ``owner/name``, which may be a hub model or a relative directory."""
    model = document.training_config.base_model
    source, fitting = model.source, possible_sources(model.model_id)
    if source and source not in fitting:
        raise BadSpec(
            f"source is {source!r}, but model_id names a model of source {' or '.join(fitting)}"
            f"{did_you_mean(source, fitting)}; leave source out, or name another model",
            field=f"{_MODEL}.source",
        )


def possible_sources(model_id: str) -> tuple[str, ...]:
    """Valid values of ``source`` for this model_id."""
    if is_hub_id(model_id):
        return HUB, LOCAL
    kind = kind_of(model_id, field=f"{_MODEL}.model_id")
    return {HF: (HF, HUB), FILE: (LOCAL, FILE)}.get(kind, (kind,))


def revision_belongs_to_a_hub_model(document: JobDocument) -> None:
    model = document.training_config.base_model
    revision, field = model.revision, f"{_MODEL}.revision"
    if not revision:
        return
    if HUB not in possible_sources(model.model_id) or model.source == LOCAL:
        raise BadSpec("only models of a hub have revisions; leave revision out", field=field)
    if "@" in model.model_id:
        raise BadSpec("model_id names a revision already, after @; leave one of them out", field=field)
    if _REVISION.fullmatch(revision) is None or ".." in revision:
        raise BadSpec("a revision is a branch, a tag or a commit of the model's repository", field=field)


def is_drawn(base_model: BaseModel) -> bool:
    """Whether the training starts from random weights, so that none have to be loaded."""
    return bool(base_model.from_config)


def is_without_model(base_model: BaseModel, *, custom: bool) -> bool:
    """Whether no place of a model is needed: a script creates it, the document defines it, or a job has made it."""
    none = base_model.model_id == NO_MODEL
    return none and (custom or is_result(base_model) or isinstance(base_model.from_config, Mapping))


def is_result(base_model: BaseModel) -> bool:
    """Whether it is the whole model that a job has made."""
    return base_model.job_id is not None and base_model.model_id == NO_MODEL


def continues_adapter(base_model: BaseModel) -> bool:
    """Whether the training continues the adapter that a job has made for this base model."""
    return base_model.job_id is not None and base_model.model_id != NO_MODEL


def result_is_trained_where_it_can_be(document: JobDocument) -> None:
    base, field = document.training_config.base_model, f"{_MODEL}.job_id"
    if base.job_id is None:
        return
    if is_custom(document):
        raise BadSpec("a custom script loads its model itself; leave job_id out, and name a place", field=field)
    if base.from_config:
        raise BadSpec("weights are drawn, or those of a job; leave from_config or job_id out", field=field)
    if continues_adapter(base) and trainer(document) != ("HF_TRAINER", "LORA"):
        raise NotSupportedYet(
            f"the result of {base.job_id} is an adapter, which HF_TRAINER and LORA alone continue; take these, or "
            "train with merge_lora and name that result",
            field=field,
        )


def weights_are_drawn_where_they_can_be(document: JobDocument) -> None:
    model = document.training_config.base_model
    if not is_drawn(model):
        return
    if is_custom(document):
        raise BadSpec("a custom script makes its model itself; leave from_config out", field=_FROM_CONFIG)
    if trainer(document) not in FROM_SCRATCH:
        known = ", ".join(kind for _, kind in FROM_SCRATCH)
        raise NotSupportedYet(
            f"{' with '.join(trainer(document))} trains a model that has weights; from scratch use HF_TRAINER with "
            f"{known}: choose one of these, or leave from_config out",
            field=_FROM_CONFIG,
        )
    _check_definition(model)


def _check_definition(model: BaseModel) -> None:
    definition, none = model.from_config, model.model_id == NO_MODEL
    if not isinstance(definition, Mapping):
        if none:
            raise BadSpec(
                "model_id is none, and has no config.json; name a model's directory, or say the configuration as an "
                "object",
                field=_FROM_CONFIG,
            )
        return
    for name in ("auto_map", "quantization_config"):
        if name in definition:
            raise BadSpec(
                f"{name} can't be part of it; for code of one's own put config.json and code into a directory, name "
                "that by model_id, and say from_config true",
                field=f"{_FROM_CONFIG}.{name}",
            )
    if none and not model.tokenizer_id:
        raise BadSpec(
            "model_id is none, so tokenizer_id must name a tokenizer: a directory, or a model of the hub",
            field=f"{_MODEL}.tokenizer_id",
        )


def dtype_is_known(document: JobDocument) -> None:
    dtype, field = document.training_config.base_model.dtype or BaseModel.dtype, f"{_MODEL}.dtype"
    if dtype not in DTYPES:
        raise BadSpec(f"unknown dtype {dtype!r}; known: {', '.join(DTYPES)}{did_you_mean(dtype, DTYPES)}", field=field)
    if dtype == "float16" and not asks_for_gpus(document):
        raise BadSpec("float16 needs GPUs; ask for device_type cuda, or use bfloat16", field=field)


def model_kwargs_are_known(document: JobDocument) -> None:
    if is_custom(document):
        return
    model = document.training_config.base_model
    for name, value in model.model_kwargs.items():
        field = f"{_MODEL}.model_kwargs.{name}"
        if name not in _MODEL_KWARGS:
            known = ", ".join(_MODEL_KWARGS) + did_you_mean(name, _MODEL_KWARGS)
            raise BadSpec(f"unknown option {name[:64]!r}; known: {known}", field=field)
        fits, expected = _MODEL_KWARGS[name]
        if not fits(value):
            meant = did_you_mean(value, ATTENTIONS) if name == _ATTENTION and isinstance(value, str) else ""
            raise BadSpec(f"{quoted(value)} must be {expected}{meant}".lstrip(), field=field)
    _check_attention(document, model.model_kwargs, model.dtype)


def _check_attention(document: JobDocument, kwargs: Mapping[str, Any], dtype: str | None) -> None:
    if kwargs.get("attn_implementation") != "flash_attention_2":
        return
    field = f"{_MODEL}.model_kwargs.attn_implementation"
    if document.resource_config.device_type == "cpu":
        raise BadSpec("flash_attention_2 needs GPUs; ask for device_type cuda, or use sdpa", field=field)
    if dtype == "float32":
        raise BadSpec("flash_attention_2 needs dtype bfloat16 or float16; change dtype, or use sdpa", field=field)


def _is_share(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= 1


def _is_length(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= 2**24


# Name → (test of its value, the values in words).
_ATTENTION = "attn_implementation"
_MODEL_KWARGS: dict[str, tuple[Callable[[object], bool], str]] = {
    _ATTENTION: (lambda value: value in ATTENTIONS, f"one of {', '.join(ATTENTIONS)}"),
    "attention_dropout": (_is_share, "a number from 0 to 1"),
    "max_position_embeddings": (_is_length, "a whole number of tokens from 1 to 16777216"),
    "rope_scaling": (lambda value: isinstance(value, dict), "an object, as in the model's config.json"),
}


def known_model_kwargs() -> str:
    return ", ".join(f"{name} ({expected})" for name, (_, expected) in _MODEL_KWARGS.items())


RULES = (
    base_model_is_named,
    source_fits_the_model,
    revision_belongs_to_a_hub_model,
    dtype_is_known,
    model_kwargs_are_known,
    weights_are_drawn_where_they_can_be,
    result_is_trained_where_it_can_be,
)
