"""How a training with transformers' Trainer becomes a sharded one, on CUDA devices and on CPU slots.

Zhao et al., PyTorch FSDP: Experiences on Scaling Fully Sharded Data Parallel, 2023 (arXiv:2304.11277); what runs here
is its second form, `torch.distributed.fsdp.fully_shard`.
"""

from typing import Any

from accelerate.state import PartialState
from accelerate.utils import DistributedType
from transformers import TrainingArguments

from app.domain.spec.frameworks.fsdp import CPU_OFFLOAD, RESHARD_AFTER_FORWARD, sharding
from workers.rank.run_context import RunSpec


def sharded_arguments(spec: RunSpec) -> dict[str, Any]:
    """What the trainer's configuration says besides. A device that is the only one shares with nobody."""
    if spec.world_size == 1:
        return {}
    asked = sharding((spec.training_config.get("framework") or {}).get("config") or {})
    return {
        "ddp_backend": "gloo" if spec.device_type != "cuda" else "nccl",
        # Else it would be done twice: by the model, and by the layers around it.
        "activation_checkpointing": False,
        "fsdp": True,
        "fsdp_config": {
            "version": 2,
            "auto_wrap_policy": "TRANSFORMER_BASED_WRAP",
            "reshard_after_forward": asked[RESHARD_AFTER_FORWARD],
            # Of CPU slots all is there already, and torch would ask for memory that a device can read.
            "cpu_offload": asked[CPU_OFFLOAD] and spec.device_type == "cuda",
            "activation_checkpointing": bool(spec.hyperparameters["gradient_checkpointing"]),
            "state_dict_type": "SHARDED_STATE_DICT",
        },
    }


def enter_sharding(args: TrainingArguments) -> None:
    """Accelerate shards only where it finds several GPUs, and on CPU slots would copy the model without a word."""
    on_cpu = args.device.type == "cpu"  # asking makes accelerate find out
    if args.fsdp and on_cpu:
        PartialState._shared_state["distributed_type"] = DistributedType.MULTI_GPU  # noqa: SLF001
