"""Configures FSDP for a training with transformers' Trainer, on CUDA devices and on CPU slots.

Zhao et al., PyTorch FSDP: Experiences on Scaling Fully Sharded Data Parallel, 2023 (arXiv:2304.11277); this uses FSDP2,
`torch.distributed.fsdp.fully_shard`.
"""

from typing import Any

from accelerate.state import PartialState
from accelerate.utils import DistributedType
from transformers import TrainingArguments

from app.domain.spec.frameworks.fsdp import CPU_OFFLOAD, RESHARD_AFTER_FORWARD, sharding
from workers.rank.run_context import RunSpec
from workers.rank.spec_sections import training_config


def sharded_arguments(spec: RunSpec) -> dict[str, Any]:
    """Additional trainer arguments; a single device is not sharded."""
    if spec.world_size == 1:
        return {}
    asked = sharding(training_config(spec).framework.config)
    return {
        "ddp_backend": "gloo" if spec.device_type != "cuda" else "nccl",
        # Otherwise it would be applied twice: by the model, and by the layers around it.
        "activation_checkpointing": False,
        "fsdp": True,
        "fsdp_config": {
            "version": 2,
            "auto_wrap_policy": "TRANSFORMER_BASED_WRAP",
            "reshard_after_forward": asked[RESHARD_AFTER_FORWARD],
            # CPU slots have everything in host memory already, and torch would request pinned memory.
            "cpu_offload": asked[CPU_OFFLOAD] and spec.device_type == "cuda",
            "activation_checkpointing": bool(spec.hyperparameters["gradient_checkpointing"]),
            "state_dict_type": "SHARDED_STATE_DICT",
        },
    }


def enter_sharding(args: TrainingArguments) -> None:
    """Enable sharding where accelerate would not: it shards only with several GPUs, and silently replicates on CPU
    slots.
    """
    on_cpu = args.device.type == "cpu"  # reading it initializes accelerate
    if args.fsdp and on_cpu:
        PartialState._shared_state["distributed_type"] = DistributedType.MULTI_GPU  # noqa: SLF001
