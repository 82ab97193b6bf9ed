"""LoRA adapters: built from hyperparameters, with a check that the target modules can be adapted."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import torch
from peft import (
    LoraConfig,
    PeftModel,
    TaskType,
    get_peft_model,
    get_peft_model_state_dict,
    load_peft_weights,
    set_peft_model_state_dict,
)
from safetensors import SafetensorError
from torch import nn
from transformers import PreTrainedModel, set_seed
from transformers.pytorch_utils import Conv1D

from app.domain.spec.hyperparameters.parsing import names
from app.domain.spec.hyperparameters.rlhf import REWARD_METHOD
from workers.rank.run_context import RunSpec, method_of
from workers.rank.spec_sections import data_config
from workers.trainers.failures import InvalidConfig, ModelNotFound

ALL_LINEAR = "all-linear"


def adapted(model: PreTrainedModel, spec: RunSpec, *, new_tokens: bool) -> PeftModel:
    """The model with a new adapter, initialized by the job's seed, or with the one that the training continues.

    Only the adapter is trained.

    With `new_tokens` (tokens without an embedding in the base model) all embeddings are trained too. Adapter weights
    stay in float32 whatever the base model's dtype. Raises InvalidConfig.
    """
    config = lora_config(model, spec, new_tokens=new_tokens)
    # The same initial weights on every rank and at every resume.
    set_seed(data_config(spec).seed)
    try:
        made = get_peft_model(model, config)
    except (TypeError, ValueError) as error:
        raise InvalidConfig(f"no adapter can be made with these hyperparameters: {error}") from error
    if spec.weights_path:
        _take_weights(made, Path(spec.weights_path))
    return made


def lora_config(model: PreTrainedModel, spec: RunSpec, *, new_tokens: bool) -> LoraConfig:
    """The LoraConfig that `adapted` derives from the job's hyperparameters for this model. Raises InvalidConfig."""
    values = spec.hyperparameters
    targets = names(values["lora_target_modules"])
    whole = list(names(values["modules_to_save"]))
    _check(model, targets, whole)
    embeddings = _name_of(model, model.get_input_embeddings())
    head = _head_of(model)
    scores = method_of(spec) == REWARD_METHOD
    tied = bool(model.config.get_text_config().tie_word_embeddings) and not scores
    if new_tokens:
        # New tokens have no pretrained embedding, so their embeddings (and head rows) must be trained in full.
        wanted = (embeddings,) if tied else (embeddings, head)
        whole += [name for name in wanted if name not in whole]
    return LoraConfig(
        # A score head is new, and peft trains it in full.
        task_type=TaskType.SEQ_CLS if scores else TaskType.CAUSAL_LM,
        r=values["lora_r"],
        lora_alpha=values["lora_alpha"],
        lora_dropout=values["lora_dropout"],
        target_modules=ALL_LINEAR if targets == (ALL_LINEAR,) else list(targets),
        bias=values["lora_bias"],
        use_rslora=values["use_rslora"],
        use_dora=values["use_dora"],
        modules_to_save=whole or None,
        ensure_weight_tying=tied and bool({embeddings, head} & set(whole)),
    )


def _take_weights(model: PeftModel, directory: Path) -> None:
    """The weights of a stored adapter, which must be of this form. Raises ModelNotFound and InvalidConfig."""
    try:
        stored = load_peft_weights(str(directory), device="cpu")
    except (KeyError, OSError, SafetensorError, ValueError) as error:
        raise ModelNotFound(f"the adapter to continue can't be read: {error}") from error
    own = get_peft_model_state_dict(model, save_embedding_layers=False)
    if different := sorted(_shapes(own) ^ _shapes(stored)):
        raise InvalidConfig(
            f"the adapter to continue has other weights than these hyperparameters make, such as {different[0][0]}: "
            "repeat the hyperparameters lora_… and modules_to_save of its training"
        )
    set_peft_model_state_dict(model, stored)


def _shapes(weights: Mapping[str, torch.Tensor]) -> set[tuple[str, tuple[int, ...]]]:
    return {(name, tuple(each.shape)) for name, each in weights.items()}


def _check(model: PreTrainedModel, targets: Sequence[str], whole: Sequence[str]) -> None:
    """Reject what peft silently ignores (names that match no module) and what trl refuses (an adapter on the head)."""
    if not targets:
        raise InvalidConfig(f"lora_target_modules is empty: use {ALL_LINEAR}, or names of modules")
    head = _head_of(model)
    linear = {name for name, module in model.named_modules() if isinstance(module, nn.Linear | Conv1D)}
    known = sorted({name.rpartition(".")[2] for name in linear} - {head})
    for target in targets:
        if target == ALL_LINEAR and len(targets) == 1:
            return _check_whole(model, whole)
        if target == head:
            raise InvalidConfig(
                f"lora_target_modules: the head {head} can't have an adapter; name it in modules_to_save"
            )
        if not _matches(target, linear):
            raise InvalidConfig(
                f"lora_target_modules: the model has no linear module {target}; it has {', '.join(known)}"
            )
    return _check_whole(model, whole)


def _check_whole(model: PreTrainedModel, whole: Sequence[str]) -> None:
    modules = [name for name, _ in model.named_modules() if name]
    for name in whole:
        if not _matches(name, modules):
            known = ", ".join(sorted({each.rpartition(".")[2] for each in modules if not each[-1].isdigit()}))
            raise InvalidConfig(f"modules_to_save: the model has no module {name}; it has {known}")


def _matches(name: str, modules: Iterable[str]) -> bool:
    return any(module == name or module.endswith(f".{name}") for module in modules)


def _head_of(model: PreTrainedModel) -> str:
    """The module that computes token logits, or else scores."""
    head = model.get_output_embeddings()  # type: ignore[no-untyped-call]
    return _name_of(model, getattr(model, "score", None) if head is None else head)


def _name_of(model: PreTrainedModel, wanted: nn.Module | None) -> str:
    """The last part of the module's name; "" when the model does not have it."""
    found = (name for name, module in model.named_modules() if module is wanted)
    return next(found, "").rpartition(".")[2] if wanted is not None else ""
