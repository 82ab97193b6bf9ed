"""A configuration of axolotl as a job document.

Its options: https://docs.axolotl.ai/docs/config-reference.html
"""

from pathlib import Path, PurePosixPath
from typing import Any

from app.cli.client.imports.axolotl_data import add_datasets
from app.cli.client.imports.axolotl_keys import REASONS, SILENT
from app.cli.client.imports.datasets import DraftSources
from app.cli.client.imports.draft import Draft, Imported
from app.cli.client.imports.keys import ConfigKeys, NotImported
from app.cli.client.imports.results import choose_best, evaluate
from app.cli.client.imports.schedule import apply_optimizer, apply_schedule
from app.cli.client.imports.sharding import apply_deepspeed, apply_fsdp
from app.cli.client.imports.tracking import add_mlflow, add_wandb

_HYPERPARAMETERS = {
    "learning_rate": "learning_rate",
    "num_epochs": "num_train_epochs",
    "max_steps": "max_steps",
    "warmup_steps": "warmup_steps",
    "warmup_ratio": "warmup_ratio",
    "weight_decay": "weight_decay",
    "adam_beta1": "adam_beta1",
    "adam_beta2": "adam_beta2",
    "adam_epsilon": "adam_epsilon",
    "max_grad_norm": "max_grad_norm",
    "eval_batch_size": "eval_batch_size",
    "logging_steps": "logging_steps",
    "neftune_noise_alpha": "neftune_noise_alpha",
    "noisy_embedding_alpha": "neftune_noise_alpha",
    "group_by_length": "group_by_length",
    "sample_packing": "packing",
    "early_stopping_patience": "early_stopping_patience",
    "load_best_model_at_end": "load_best_model_at_end",
}
# Defaults that differ from ours.
_DEFAULTS = {"num_train_epochs": "1", "warmup_ratio": "0.03"}
_OF_ADAPTERS = {
    "lora_r": "lora_r",
    "lora_alpha": "lora_alpha",
    "lora_dropout": "lora_dropout",
    "lora_modules_to_save": "modules_to_save",
    "peft_use_dora": "use_dora",
    "peft_use_rslora": "use_rslora",
}
_OF_TRL = {
    "num_generations": "num_generations",
    "max_completion_length": "max_completion_length",
    "temperature": "temperature",
    "top_p": "top_p",
    "top_k": "top_k",
    "beta": "beta",
    "loss_type": "loss_type",
    "mask_truncated_completions": "mask_truncated_completions",
}
_ADAPTERS = {"lora": "LORA", "qlora": "QLORA"}
_ATTENTION = {"flash_attention": "flash_attention_2", "sdp_attention": "sdpa", "eager_attention": "eager"}


def imported(keys: ConfigKeys, folder: Path, *, default_name: str, gpus: int) -> Imported:
    """The job document. ``folder`` is that of the configuration, for the files that it names.

    Raises NotImported for a training that no training type is.
    """
    output = PurePosixPath(str(keys.peek("output_dir") or "")).name
    draft = Draft(keys=keys, name=str(keys.peek("wandb_name") or output or default_name), gpus=gpus)
    _method(draft)
    _model(draft)
    draft.hyperparameters |= _DEFAULTS
    draft.carry(_HYPERPARAMETERS)
    _adapter(draft)
    _trl(draft)
    _training(draft)
    if value := keys.take("deepspeed"):
        apply_deepspeed(draft, value, folder)
    settings = keys.take("fsdp_config") or {}
    if (options := keys.take("fsdp")) or settings:
        apply_fsdp(draft, options, settings)
    _data(draft)
    _evaluation_and_saves(draft)
    add_wandb(draft, run_name=keys.peek("wandb_name"))
    add_mlflow(draft, run_name=keys.peek("mlflow_run_name"), asked="use_mlflow" if keys.flag("use_mlflow") else "")
    keys.leave_rest(REASONS, silent=SILENT)
    return draft.finished()


def _method(draft: Draft) -> None:
    keys = draft.keys
    adapter = str(keys.take("adapter") or "")
    if adapter and adapter not in _ADAPTERS:
        raise NotImported(f"adapter: {adapter} has no training type; known: lora, qlora")
    if adapter == "lora" and keys.flag("load_in_4bit"):
        adapter = "qlora"
    objective = _objective(draft)
    if objective:
        draft.training_type = objective
    elif adapter:
        draft.training_type = _ADAPTERS[adapter]
    elif keys.has("pretraining_dataset"):
        draft.training_type = "CONTINUED_PRETRAIN"
    if objective and adapter:
        draft.set("use_lora", value=True, origin="adapter")
        if adapter == "qlora":
            draft.note("adapter", adapter, f"{objective} trains an adapter on a base model in bfloat16")


def _objective(draft: Draft) -> str:
    """The training type of ``rl`` and ``reward_model``; empty without them."""
    rl = str(draft.keys.take("rl") or "").lower()
    if rl in ("dpo", "true", "ipo"):
        if rl == "ipo":
            draft.set("loss_type", "ipo", origin="rl")
        return "DPO"
    if rl == "grpo":
        draft.set("algorithm", "grpo", origin="rl")
        draft.set("beta", 0, origin="rl")  # trl's default
        return "RLHF"
    if rl:
        raise NotImported(f"rl: {rl} has no training type; known: dpo, ipo, grpo")
    if draft.keys.flag("reward_model"):
        draft.set("algorithm", "reward", origin="reward_model")
        return "RLHF"
    return ""


def _model(draft: Draft) -> None:
    keys = draft.keys
    model = keys.take("base_model")
    if not model:
        raise NotImported("base_model: is missing")
    draft.base_model = {"model_id": str(model)}
    if revision := keys.take("revision_of_model"):
        draft.base_model["revision"] = str(revision)
    if (tokenizer := keys.take("tokenizer_config")) and tokenizer != model:
        draft.base_model["tokenizer_id"] = str(tokenizer)
    if keys.flag("trust_remote_code"):
        draft.base_model["trust_remote_code"] = True
    _precision(draft)
    _model_kwargs(draft)


def _precision(draft: Draft) -> None:
    """The weights, too, are stored in what axolotl computes in."""
    keys = draft.keys
    asks = {key: keys.flag(key) for key in ("bfloat16", "fp16", "float16", "float32")}
    if keys.take("bf16", "auto") in (True, "auto", "true", "full") or asks["bfloat16"]:
        draft.base_model["dtype"] = "bfloat16"
    elif asks["fp16"] or asks["float16"]:
        draft.base_model["dtype"] = "float16"


def _model_kwargs(draft: Draft) -> None:
    keys = draft.keys
    kwargs: dict[str, Any] = {}
    for key, ours in _ATTENTION.items():
        if keys.flag(key):
            kwargs["attn_implementation"] = ours
    asked = keys.take("attn_implementation")
    if asked in _ATTENTION.values():
        kwargs["attn_implementation"] = asked
    elif asked:
        draft.note("attn_implementation", asked, f"the model's default; known: {', '.join(_ATTENTION.values())}")
    overrides = ConfigKeys(keys.take("overrides_of_model_config") or {}, "overrides_of_model_config.")
    for name in ("rope_scaling", "max_position_embeddings", "attention_dropout"):
        if (value := overrides.take(name)) is not None:
            kwargs[name] = value
    overrides.leave_rest({"*": "base_model.model_kwargs does not change it"})
    keys.left += overrides.left
    if kwargs:
        draft.base_model["model_kwargs"] = kwargs


def _adapter(draft: Draft) -> None:
    keys = draft.keys
    if not draft.has_adapter:
        return
    draft.hyperparameters["lora_dropout"] = "0"
    draft.carry(_OF_ADAPTERS)
    if keys.flag("lora_target_linear"):
        draft.set("lora_target_modules", "all-linear", origin="lora_target_linear")
        keys.take("lora_target_modules")
    elif targets := keys.take("lora_target_modules"):
        draft.set("lora_target_modules", targets)
    options = keys.take("bnb_config_kwargs") or {}
    for name, value in options.items():
        if name in ("bnb_4bit_quant_type", "bnb_4bit_use_double_quant"):
            draft.set(name, value, origin=f"bnb_config_kwargs.{name}")
        else:
            draft.note(f"bnb_config_kwargs.{name}", value, "no hyperparameter has this meaning")


def _trl(draft: Draft) -> None:
    beta = draft.keys.take("rl_beta", draft.keys.take("dpo_beta"))
    if beta is not None:
        draft.set("beta", beta, origin="rl_beta")
    section = ConfigKeys(draft.keys.take("trl") or {}, "trl.")
    for key, ours in _OF_TRL.items():
        if (value := section.take(key)) is not None:
            draft.set(ours, value, origin=f"trl.{key}")
    if section.has("scale_rewards"):
        draft.set("scale_rewards", "group" if section.flag("scale_rewards") else "none", origin="trl.scale_rewards")
    section.leave_rest(REASONS)
    draft.keys.left += section.left


def _training(draft: Draft) -> None:
    keys = draft.keys
    if optimizer := keys.take("optimizer"):
        apply_optimizer(draft, "optimizer", str(optimizer))
    arguments = dict(keys.take("lr_scheduler_kwargs") or {})
    schedule = str(keys.take("lr_scheduler") or "cosine")
    least = keys.take("cosine_min_lr_ratio")
    if least is not None and schedule == "cosine":
        schedule, arguments["min_lr_rate"] = "cosine_with_min_lr", least
    elif least is not None:
        draft.note("cosine_min_lr_ratio", least, f"{schedule} does not end at a share of learning_rate")
    apply_schedule(draft, "lr_scheduler", schedule, arguments)
    saves_memory = keys.take("gradient_checkpointing")
    if saves_memory:
        draft.set("gradient_checkpointing", value=True)
        if saves_memory not in (True, "true"):
            draft.note("gradient_checkpointing", saves_memory, "is true: activations are not moved to host memory")
    if keys.flag("train_on_inputs"):
        draft.set("completion_only_loss", value=False, origin="train_on_inputs")
        draft.set("assistant_only_loss", value=False, origin="train_on_inputs")


def _data(draft: Draft) -> None:
    keys, data = draft.keys, draft.data
    sources = DraftSources(draft)
    for key in ("datasets", "pretraining_dataset"):
        given = keys.take(key)
        if key == "pretraining_dataset" and given:
            data["streaming"] = True
        add_datasets(draft, sources, key)
    if not sources.listed:
        raise NotImported("datasets: names no data")
    add_datasets(draft, sources, "test_datasets", split="validation")
    sources.finish()
    data["max_seq_length"] = int(keys.take("sequence_len") or 512)
    batch = int(keys.take("micro_batch_size") or 1)
    data["batch_size"] = batch
    total = keys.take("batch_size")
    steps = keys.take("gradient_accumulation_steps")
    data["gradient_accumulation_steps"] = int(steps or max(1, int(total or batch) // (batch * draft.gpus)))
    share = float(keys.take("val_set_size") or 0)
    if 0 < share < 1:
        data["validation_split"] = share
    elif share:
        draft.note("val_set_size", share, "is a share of the records here: data_config.validation_split")
    for key, ours in (("seed", "seed"), ("dataloader_num_workers", "num_workers")):
        if (value := keys.take(key)) is not None:
            data[ours] = int(value)
    if keys.has("dataloader_pin_memory"):
        data["pin_memory"] = keys.flag("dataloader_pin_memory")
    _preprocess(draft)


def _preprocess(draft: Draft) -> None:
    keys = draft.keys
    preprocess: dict[str, Any] = draft.data.setdefault("preprocess", {})
    if keys.flag("pad_to_sequence_len") and draft.hyperparameters.get("packing") != "true":
        preprocess["padding"] = "max_length"
    template, text = keys.take("chat_template"), keys.take("chat_template_jinja")
    if text and "{" in str(text):
        preprocess["chat_template"] = str(text)
    elif text:
        draft.note("chat_template_jinja", text, "is a text here: data_config.preprocess.chat_template")
    elif template and not str(template).startswith("tokenizer_default"):
        draft.note(
            "chat_template", template, "the tokenizer's own one is used, or data_config.preprocess.chat_template"
        )
    tokens = {str(name): str(value) for name, value in (keys.take("special_tokens") or {}).items() if value}
    if tokens:
        preprocess["tokenizer_config"] = tokens
    if not preprocess:
        del draft.data["preprocess"]


def _evaluation_and_saves(draft: Draft) -> None:
    _evaluation(draft)
    _saves(draft)
    choose_best(draft)
    keys = draft.keys
    if repository := keys.take("hub_model_id"):
        draft.output |= {"push_to_hub": True, "hub_repo_id": str(repository)}
    if keys.flag("merge_lora"):
        draft.output["merge_lora"] = True


def _evaluation(draft: Draft) -> None:
    evaluate(draft)
    keys = draft.keys
    if not draft.evaluates:
        keys.take("evals_per_epoch")  # nothing is held out to evaluate on
    elif not draft.evaluation and keys.peek("evals_per_epoch") == 1:
        keys.take("evals_per_epoch")
        draft.evaluation = {"strategy": "epoch"}


def _saves(draft: Draft) -> None:
    keys = draft.keys
    strategy, every = keys.peek("save_strategy"), keys.peek("save_steps")
    if strategy == "epoch" or keys.peek("saves_per_epoch") == 1:
        keys.take("save_strategy"), keys.take("saves_per_epoch")
        draft.checkpoint["save_strategy"] = "epoch"
    elif isinstance(every, int) and every > 0:
        draft.checkpoint["save_steps"] = keys.take("save_steps")
    if strategy == "steps":
        keys.take("save_strategy")
