"""Which word was probably meant: near spellings, and the names that other tools use for ours."""

from collections.abc import Collection, Mapping
from difflib import get_close_matches

# What other tools call a value or a field of ours, by its folded form.
_SYNONYMS: Mapping[str, tuple[str, ...]] = {
    # Frameworks and training types.
    "hf": ("HF_TRAINER",),
    "huggingface": ("hub", "HF_TRAINER", "hf"),
    "hugging_face": ("hub", "HF_TRAINER"),
    "huggingface_hub": ("hub",),
    "transformers": ("HF_TRAINER",),
    "trl": ("HF_TRAINER",),
    "torchrun": ("CUSTOM",),
    "zero": ("DEEPSPEED",),
    "full": ("FULL_FINETUNE",),
    "finetune": ("FULL_FINETUNE",),
    "fine_tune": ("FULL_FINETUNE",),
    "pretrain": ("CONTINUED_PRETRAIN",),
    "pretraining": ("CONTINUED_PRETRAIN",),
    "grpo": ("RLHF",),
    "ppo": ("RLHF",),
    # Devices and number formats.
    "nvidia": ("cuda",),
    "bf16": ("bfloat16",),
    "fp16": ("float16",),
    "half": ("float16",),
    "fp32": ("float32",),
    "attn_impl": ("attn_implementation",),
    "flash": ("flash_attention_2",),
    "flash_attention": ("flash_attention_2",),
    "flash_attn": ("flash_attention_2",),
    # Hyperparameters.
    "lr": ("learning_rate",),
    "epochs": ("num_train_epochs",),
    "num_epochs": ("num_train_epochs",),
    "n_epochs": ("num_train_epochs",),
    "steps": ("max_steps",),
    "num_steps": ("max_steps",),
    "wd": ("weight_decay",),
    "optimizer": ("optim",),
    "scheduler": ("lr_scheduler_type",),
    "lr_scheduler": ("lr_scheduler_type",),
    "warmup": ("warmup_steps",),
    "clip": ("max_grad_norm",),
    "grad_clip": ("max_grad_norm",),
    "gradient_clip": ("max_grad_norm",),
    "gradient_clipping": ("max_grad_norm",),
    "r": ("lora_r",),
    "rank": ("lora_r",),
    "lora_rank": ("lora_r",),
    "alpha": ("lora_alpha",),
    "dropout": ("lora_dropout",),
    "target_modules": ("lora_target_modules",),
    "lora_target": ("lora_target_modules",),
    # Fields of the document.
    "bs": ("batch_size",),
    "micro_batch_size": ("batch_size",),
    "train_batch_size": ("batch_size",),
    "per_device_train_batch_size": ("batch_size",),
    "per_device_eval_batch_size": ("eval_batch_size",),
    "grad_accum": ("gradient_accumulation_steps",),
    "gradient_accumulation": ("gradient_accumulation_steps",),
    "seq_len": ("max_seq_length",),
    "seq_length": ("max_seq_length",),
    "sequence_len": ("max_seq_length",),
    "max_seq_len": ("max_seq_length",),
    "max_length": ("max_seq_length",),
    "cutoff_len": ("max_seq_length",),
    "context_length": ("max_seq_length",),
    "val_split": ("validation_split",),
    "eval_split": ("validation_split",),
    "val_set_size": ("validation_split",),
    "dataset": ("sources", "path"),
    "datasets": ("sources",),
    "url": ("path",),
    "uri": ("path",),
    "file": ("path",),
    "model": ("model_id", "base_model"),
    "model_name": ("model_id",),
    "model_name_or_path": ("model_id",),
    "tokenizer": ("tokenizer_id",),
    "torch_dtype": ("dtype",),
    "env": ("environment",),
    "gpus": ("gpu_count",),
    "num_gpus": ("gpu_count",),
    "gpu": ("gpu_count", "cuda"),
    "nodes": ("node_count",),
    "num_nodes": ("node_count",),
    "nnodes": ("node_count",),
    "ram": ("ram_min_mb",),
    "memory": ("ram_min_mb",),
    "cpus": ("cpu_cores",),
    "cpu": ("cpu_cores", "cpu"),
    "output_dir": ("output_path",),
    "retries": ("max_retries",),
    "timeout": ("max_runtime_seconds",),
    # States.
    "running": ("TRAINING",),
    "waiting": ("QUEUED",),
    "done": ("COMPLETED",),
    "ended": ("COMPLETED",),
    "finished": ("COMPLETED",),
    "succeeded": ("COMPLETED",),
    "success": ("COMPLETED",),
    "error": ("FAILED",),
    "crashed": ("FAILED",),
    "killed": ("CANCELLED",),
    "aborted": ("CANCELLED",),
    # Commands.
    "job": ("jobs",),
    "run": ("submit",),
    "train": ("submit",),
    "ps": ("jobs",),
    "ls": ("list", "jobs"),
    "start": ("up",),
    "stop": ("cancel",),
    "kill": ("cancel",),
    "follow": ("watch",),
}
_LONGEST_WORD, _NEAR = 64, 0.75


def did_you_mean(given: str, accepted: Collection[str]) -> str:
    """The end of a sentence that lists the accepted words, with the one that is probably meant; empty without any.

    ``accepted`` holds only what the caller may know of: names of other projects are no suggestion.
    """
    meant = same(given, accepted) or near(given, accepted)
    return f" (did you mean {meant}?)" if meant else ""


def same(given: str, accepted: Collection[str]) -> str | None:
    """The accepted word in another spelling, or under another tool's name."""
    folded = _folded(given)
    found = [word for word in accepted if _folded(word) == folded]
    found += [word for word in _SYNONYMS.get(folded, ()) if word in accepted]
    return found[0] if found else None


def near(given: str, accepted: Collection[str]) -> str | None:
    """The accepted word that differs from it by little."""
    by_folded = {_folded(word): word for word in accepted}
    found = get_close_matches(_folded(given), by_folded, n=1, cutoff=_NEAR)
    return by_folded[found[0]] if found else None


def _folded(word: str) -> str:
    return word[:_LONGEST_WORD].lower().replace("-", "_").replace(" ", "_")
