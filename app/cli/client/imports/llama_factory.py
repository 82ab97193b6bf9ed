"""A configuration of LLaMA-Factory as a job document.

Its options: https://llamafactory.readthedocs.io/en/latest/advanced/arguments.html, and those of transformers' Trainer.
"""

from collections.abc import Mapping
from pathlib import Path, PurePosixPath

from app.cli.client.imports.datasets import DraftSources
from app.cli.client.imports.draft import Draft, Imported
from app.cli.client.imports.keys import ConfigKeys, NotImported
from app.cli.client.imports.llama_factory_data import add_datasets
from app.cli.client.imports.llama_factory_keys import REASONS, SILENT
from app.cli.client.imports.results import choose_best, evaluate
from app.cli.client.imports.schedule import apply_optimizer, apply_schedule
from app.cli.client.imports.sharding import apply_deepspeed, apply_fsdp
from app.cli.client.imports.tracking import add_reported

_HYPERPARAMETERS = {
    "learning_rate": "learning_rate",
    "num_train_epochs": "num_train_epochs",
    "max_steps": "max_steps",
    "warmup_steps": "warmup_steps",
    "warmup_ratio": "warmup_ratio",
    "weight_decay": "weight_decay",
    "adam_beta1": "adam_beta1",
    "adam_beta2": "adam_beta2",
    "adam_epsilon": "adam_epsilon",
    "max_grad_norm": "max_grad_norm",
    "per_device_eval_batch_size": "eval_batch_size",
    "logging_steps": "logging_steps",
    "neftune_noise_alpha": "neftune_noise_alpha",
    "label_smoothing_factor": "label_smoothing_factor",
    "group_by_length": "group_by_length",
    "packing": "packing",
    "load_best_model_at_end": "load_best_model_at_end",
    "full_determinism": "full_determinism",
}
# Defaults that differ from ours.
_DEFAULTS = {"learning_rate": "5e-5"}
_OF_ADAPTERS = {
    "lora_rank": "lora_r",
    "lora_alpha": "lora_alpha",
    "lora_dropout": "lora_dropout",
    "additional_target": "modules_to_save",
    "use_dora": "use_dora",
    "use_rslora": "use_rslora",
}
_LOSSES = ("sigmoid", "hinge", "ipo")
_STAGES = "pt, sft, rm, ppo, dpo"
_ATTENTION = {"fa2": "flash_attention_2", "sdpa": "sdpa", "disabled": "eager"}


def imported(keys: ConfigKeys, folder: Path, *, default_name: str, gpus: int) -> Imported:
    """The job document. ``folder`` is that of the configuration, for the files that it names.

    Raises NotImported for a training that no training type is.
    """
    output = PurePosixPath(str(keys.peek("output_dir") or "")).name
    draft = Draft(keys=keys, name=str(keys.peek("run_name") or output or default_name), gpus=gpus)
    _method(draft)
    _model(draft)
    draft.hyperparameters |= _DEFAULTS
    draft.carry(_HYPERPARAMETERS)
    _adapter(draft)
    _training(draft)
    if value := keys.take("deepspeed"):
        apply_deepspeed(draft, value, folder)
    if options := keys.take("fsdp"):
        settings = keys.take("fsdp_config")
        apply_fsdp(draft, options, settings if isinstance(settings, Mapping) else {})
    _data(draft, folder)
    _evaluation_and_saves(draft)
    add_reported(draft)
    keys.leave_rest(REASONS, silent=SILENT)
    return draft.finished()


def _method(draft: Draft) -> None:
    keys = draft.keys
    stage, kind = str(keys.take("stage", "sft")), str(keys.take("finetuning_type", "lora"))
    if kind not in ("lora", "full"):
        raise NotImported(f"finetuning_type: {kind} has no training type; known: lora, full")
    bits = keys.peek("quantization_bit")
    if bits == 4:
        keys.take("quantization_bit")
    adapter = "QLORA" if bits == 4 else "LORA"
    if stage == "pt":
        draft.pretrains = True
        draft.training_type = adapter if kind == "lora" else "CONTINUED_PRETRAIN"
        if kind == "lora":
            draft.set("packing", value=True, origin="stage")
    elif stage == "sft":
        draft.training_type = adapter if kind == "lora" else "SFT"
    elif stage in ("dpo", "rm", "ppo"):
        draft.training_type = "DPO" if stage == "dpo" else "RLHF"
        if stage != "dpo":
            draft.set("algorithm", "reward" if stage == "rm" else "ppo", origin="stage")
        if kind == "lora":
            draft.set("use_lora", value=True, origin="finetuning_type")
        if bits == 4:
            draft.note("quantization_bit", bits, f"{draft.training_type} trains on a base model in bfloat16")
    else:
        raise NotImported(f"stage: {stage} has no training type; known: {_STAGES}")
    _preferences(draft, stage)


def _preferences(draft: Draft, stage: str) -> None:
    keys = draft.keys
    if stage == "dpo":
        loss = str(keys.take("pref_loss", "sigmoid"))
        if loss not in _LOSSES:
            raise NotImported(f"pref_loss: {loss} has no training type; known: {', '.join(_LOSSES)}")
        draft.set("loss_type", loss, origin="pref_loss")
        draft.carry({"pref_beta": "beta", "dpo_label_smoothing": "label_smoothing"})
    elif stage == "ppo":
        draft.carry({"ppo_epochs": "num_ppo_epochs", "top_p": "top_p", "top_k": "top_k", "temperature": "temperature"})
        draft.carry({"max_new_tokens": "max_completion_length"})
        draft.set("num_generations", 2, origin="stage")
        draft.note("stage", stage, "each prompt gets 2 completions, the least, in place of one: num_generations")
        if keys.peek("reward_model_type") == "full":
            keys.take("reward_model_type")
            draft.carry({"reward_model": "reward_model_id"})


def _model(draft: Draft) -> None:
    keys = draft.keys
    model = keys.take("model_name_or_path")
    if not model:
        raise NotImported("model_name_or_path: is missing")
    draft.base_model = {"model_id": str(model)}
    if (revision := keys.take("model_revision", "main")) != "main":
        draft.base_model["revision"] = str(revision)
    if keys.flag("trust_remote_code"):
        draft.base_model["trust_remote_code"] = True
    pure, bf16, fp16 = keys.flag("pure_bf16"), keys.flag("bf16"), keys.flag("fp16")
    if pure or (bf16 and draft.has_adapter):
        draft.base_model["dtype"] = "bfloat16"
    elif fp16:
        draft.base_model["dtype"] = "float16"
    elif bf16:
        draft.base_model["dtype"] = "float32"  # all weights: their updates are in float32, computing in bfloat16
    attention = keys.take("flash_attn", "auto")
    if attention in _ATTENTION:
        draft.base_model["model_kwargs"] = {"attn_implementation": _ATTENTION[attention]}
    elif attention != "auto":
        draft.note("flash_attn", attention, f"the model's default; known: {', '.join(_ATTENTION.values())}")
    if draft.training_type == "QLORA":
        draft.carry({"quantization_type": "bnb_4bit_quant_type", "double_quantization": "bnb_4bit_use_double_quant"})


def _adapter(draft: Draft) -> None:
    if not draft.has_adapter:
        return
    keys = draft.keys
    rank = int(keys.peek("lora_rank") or 8)
    draft.hyperparameters |= {"lora_r": str(rank), "lora_alpha": str(2 * rank), "lora_dropout": "0"}
    draft.carry(_OF_ADAPTERS)
    target = str(keys.take("lora_target", "all"))
    draft.set("lora_target_modules", "all-linear" if target == "all" else target.replace(" ", ""), origin="lora_target")


def _training(draft: Draft) -> None:
    keys = draft.keys
    if optimizer := keys.take("optim"):
        apply_optimizer(draft, "optim", str(optimizer))
    arguments = keys.take("lr_scheduler_kwargs") or {}
    schedule = str(keys.take("lr_scheduler_type", "linear"))
    apply_schedule(draft, "lr_scheduler_type", schedule, arguments if isinstance(arguments, Mapping) else {})
    draft.set("gradient_checkpointing", value=not keys.flag("disable_gradient_checkpointing"))
    keys.take("gradient_checkpointing")
    if keys.flag("neat_packing"):
        draft.set("packing", value=True, origin="neat_packing")
    if keys.flag("train_on_prompt"):
        draft.set("completion_only_loss", value=False, origin="train_on_prompt")
        draft.set("assistant_only_loss", value=False, origin="train_on_prompt")


def _data(draft: Draft, folder: Path) -> None:
    keys, data = draft.keys, draft.data
    sources = DraftSources(draft)
    add_datasets(draft, sources, "dataset", folder)
    if not sources.listed:
        raise NotImported("dataset: names no data")
    shares = keys.take("interleave_probs")
    if shares and keys.take("mix_strategy", "concat") != "concat":
        each = shares.split(",") if isinstance(shares, str) else shares
        for source, share in zip(sources.listed, each, strict=False):
            source["weight"] = float(share)
    add_datasets(draft, sources, "eval_dataset", folder, split="validation")
    sources.finish()
    data["max_seq_length"] = int(keys.take("cutoff_len", 2048))
    data["batch_size"] = int(keys.take("per_device_train_batch_size", 8))
    data["gradient_accumulation_steps"] = int(keys.take("gradient_accumulation_steps", 1))
    share = float(keys.take("val_size") or 0)
    if 0 < share < 1:
        data["validation_split"] = share
    elif share:
        draft.note("val_size", share, "is a share of the records here: data_config.validation_split")
    for key, ours in (("seed", "seed"), ("dataloader_num_workers", "num_workers")):
        if (value := keys.take(key)) is not None:
            data[ours] = int(value)
    if keys.has("dataloader_pin_memory"):
        data["pin_memory"] = keys.flag("dataloader_pin_memory")
    if keys.flag("streaming"):
        data |= {"streaming": True, "shuffle_buffer": int(keys.take("buffer_size", 16384))}


def _evaluation_and_saves(draft: Draft) -> None:
    keys, checkpoint = draft.keys, draft.checkpoint
    evaluate(draft)
    if keys.peek("save_strategy") in ("epoch", "steps"):
        checkpoint["save_strategy"] = keys.take("save_strategy")
    saved = keys.peek("save_steps")
    if isinstance(saved, int) and saved > 0:
        keys.take("save_steps")
        if checkpoint.get("save_strategy") != "epoch":
            checkpoint["save_steps"] = saved
    choose_best(draft)
    repository = keys.take("hub_model_id")
    if keys.flag("push_to_hub") and repository:
        draft.output |= {"push_to_hub": True, "hub_repo_id": str(repository)}
        if keys.has("hub_private_repo"):
            draft.output["hub_private"] = keys.flag("hub_private_repo")
