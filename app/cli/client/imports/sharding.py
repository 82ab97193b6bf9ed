"""Configurations of DeepSpeed and FSDP, as both tools name them, as a framework of ours."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from app.cli.client.imports.draft import Draft
from app.cli.client.imports.keys import ConfigKeys, json_object

_STAGE = re.compile(r"(?:zero|z|stage)_?([0-3])", re.IGNORECASE)
_QUANTIZED = "4-bit weights can't be divided: "
_DEFAULTS = "DeepSpeed's default is used; framework.config takes zero_stage, offload_optimizer and offload_param"
# What the job document says elsewhere, or what the platform decides.
_OF_DEEPSPEED = frozenset(
    {
        "bf16",
        "fp16",
        "gradient_accumulation_steps",
        "gradient_clipping",
        "steps_per_print",
        "train_batch_size",
        "train_micro_batch_size_per_gpu",
        "wall_clock_breakdown",
        "zero_allow_untested_optimizer",
        "zero_force_ds_cpu_optimizer",
    }
)
_OF_ZERO = frozenset({"stage3_gather_16bit_weights_on_model_save", "contiguous_gradients", "overlap_comm"})
# Of FSDP: every layer is wrapped, checkpoints are those of the platform, and all ranks read the model.
_OF_FSDP = frozenset(
    {
        "auto_wrap_policy",
        "transformer_layer_cls_to_wrap",
        "state_dict_type",
        "final_state_dict_type",
        "sync_module_states",
        "use_orig_params",
        "limit_all_gathers",
        "cpu_ram_efficient_loading",
        "version",
        "backward_prefetch",
        "backward_prefetch_policy",
    }
)
_WHOLE = "FSDP divides parameters, gradients and optimizer state over all devices of the job"


def apply_deepspeed(draft: Draft, value: str | Mapping[str, Any], folder: Path) -> None:
    """``deepspeed``: a configuration, or the path of one, which is read if it is there and else judged by its name."""
    config = value if isinstance(value, Mapping) else json_object(folder / value)
    if config is not None:
        stage, optimizer, parameters = _said(draft, config)
    else:
        name = Path(str(value)).stem
        found = _STAGE.search(name)
        stage, optimizer = int(found[1]) if found else 2, "offload" in name.lower()
        parameters = optimizer and stage == 3
        draft.note("deepspeed", value, f"the file is not here: judged by its name, zero_stage {max(stage, 1)}")
    if draft.training_type == "QLORA" and stage == 3:
        draft.note("deepspeed", value, _QUANTIZED + "zero_stage 2, in which each device holds the whole base model")
        stage, parameters = 2, False
    draft.framework = "DEEPSPEED"
    draft.framework_config = {"zero_stage": str(max(stage, 1))}
    if optimizer:
        draft.framework_config["offload_optimizer"] = "cpu"
    if parameters:
        draft.framework_config["offload_param"] = "cpu"


def _said(draft: Draft, config: Mapping[str, Any]) -> tuple[int, bool, bool]:
    """(stage, whether the optimizer is in host memory, whether parameters are) of a configuration of DeepSpeed."""
    keys = ConfigKeys(config, "deepspeed.")
    zero = ConfigKeys(keys.take("zero_optimization") or {}, "deepspeed.zero_optimization.")
    found = int(zero.take("stage", 0)), _offloads(zero, "offload_optimizer"), _offloads(zero, "offload_param")
    keys.leave_rest({"*": _DEFAULTS}, silent=_OF_DEEPSPEED)
    zero.leave_rest({"*": _DEFAULTS}, silent=_OF_ZERO)
    draft.keys.left += [*keys.left, *zero.left]
    return found


def apply_fsdp(draft: Draft, options: object, config: Mapping[str, Any]) -> None:
    """``fsdp`` with ``fsdp_config``; names are those of transformers, with or without the prefix ``fsdp_``."""
    settings = ConfigKeys({str(name).removeprefix("fsdp_"): value for name, value in config.items()}, "fsdp_config.")
    words = options if isinstance(options, list) else str(options or "").split()
    if draft.training_type == "QLORA":
        draft.note("fsdp", options, _QUANTIZED + "DEEPSPEED with zero_stage 2, for devices that hold the base model")
        draft.framework, draft.framework_config = "DEEPSPEED", {"zero_stage": "2"}
        return
    draft.framework = "FSDP"
    if settings.flag("offload_params") or "offload" in words:
        draft.framework_config["cpu_offload"] = "true"
    strategy = str(settings.take("sharding_strategy", "FULL_SHARD")).upper()
    keeps = not settings.flag("reshard_after_forward", default=True)
    if keeps or strategy in ("SHARD_GRAD_OP", "2") or "shard_grad_op" in words:
        draft.framework_config["reshard_after_forward"] = "false"
    if settings.flag("activation_checkpointing"):
        draft.set("gradient_checkpointing", value=True, origin="fsdp_config.activation_checkpointing")
    if strategy not in ("FULL_SHARD", "1", "SHARD_GRAD_OP", "2"):
        draft.note("fsdp_config.sharding_strategy", strategy, _WHOLE)
    settings.leave_rest({"*": "framework.config of FSDP takes reshard_after_forward and cpu_offload"}, silent=_OF_FSDP)
    draft.keys.left += settings.left


def _offloads(zero: ConfigKeys, name: str) -> bool:
    section = zero.take(name)
    return isinstance(section, Mapping) and section.get("device", "none") not in (None, "none")
