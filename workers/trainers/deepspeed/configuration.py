"""How a training with transformers' Trainer becomes one with DeepSpeed, on CUDA devices and on CPU slots.

Rajbhandari et al., ZeRO: Memory Optimizations Toward Training Trillion Parameter Models, 2020 (arXiv:1910.02054);
Ren et al., ZeRO-Offload, 2021 (arXiv:2101.06840).
"""

import importlib
import os
from typing import Any

from app.domain.spec.frameworks.deepspeed import Zero, zero
from workers.rank.run_context import RunSpec

LATEST = "latest"  # where DeepSpeed looks for the name of the directory with the parts


def zero_of(spec: RunSpec) -> Zero:
    """What the job asks for."""
    return zero((spec.training_config.get("framework") or {}).get("config") or {})


def configuration(spec: RunSpec, *, universal: bool) -> dict[str, Any]:
    """What DeepSpeed is told; "auto" is what transformers' own configuration says.

    `universal`: whether it goes on from a checkpoint in that form, which knows no number of ranks.
    """
    asked = zero_of(spec)
    parts: dict[str, Any] = {"stage": asked.stage}
    if asked.offload_optimizer:
        parts["offload_optimizer"] = {"device": "cpu", "pin_memory": spec.device_type == "cuda"}
    if asked.offload_param:
        parts["offload_param"] = {"device": "cpu", "pin_memory": spec.device_type == "cuda"}
    return {
        "train_batch_size": "auto",
        "train_micro_batch_size_per_gpu": "auto",
        "gradient_accumulation_steps": "auto",
        "gradient_clipping": "auto",
        "bf16": {"enabled": "auto"},
        "fp16": {"enabled": "auto"},
        "zero_optimization": parts,
        # The optimizer is the one of `hyperparameters.optim`; DeepSpeed's own would be compiled at its first use.
        "zero_allow_untested_optimizer": True,
        "zero_force_ds_cpu_optimizer": False,
        "checkpoint": {"load_universal": universal},
    }


def enter(device_type: str) -> None:
    """Before anything else of DeepSpeed is imported: have it use this kind of device, and the group of the ranks."""
    on_cpu = device_type != "cuda"
    # It would look for GPUs by itself.
    os.environ["DS_ACCELERATOR"] = "cpu" if on_cpu else "cuda"
    # The statement `import … as` would bind the package torch, which that module has as an attribute.
    communication: Any = importlib.import_module("deepspeed.comm.torch")
    if on_cpu:
        # Else a way for ranks of one machine to speak is compiled at the first start, by compilers that few nodes have.
        communication.build_shm_op = lambda: None
    # A model that is divided while it is read asks for it before transformers would.
    importlib.import_module("deepspeed").init_distributed(
        dist_backend="gloo" if on_cpu else "nccl", auto_mpi_discovery=False, verbose=False
    )
