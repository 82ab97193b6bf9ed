"""The DeepSpeed configuration of a training with transformers' Trainer, on CUDA devices and on CPU slots.

Rajbhandari et al., ZeRO: Memory Optimizations Toward Training Trillion Parameter Models, 2020 (arXiv:1910.02054); Ren
et al., ZeRO-Offload, 2021 (arXiv:2101.06840).
"""

import importlib
import os
from typing import Any

import torch

from app.domain.spec.frameworks.deepspeed import Zero, zero
from workers.rank.run_context import RunSpec
from workers.rank.spec_sections import training_config

LATEST = "latest"  # the file from which DeepSpeed reads the name of the directory with the shards


def zero_of(spec: RunSpec) -> Zero:
    """The job's ZeRO options."""
    return zero(training_config(spec).framework.config)


def configuration(spec: RunSpec, *, universal: bool) -> dict[str, Any]:
    """DeepSpeed's configuration; "auto" means the value of transformers' own configuration.

    `universal`: whether it resumes from a checkpoint in the universal format, which is independent of the number of
    ranks.
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
        # The optimizer is the one of `hyperparameters.optim`; DeepSpeed's own would be compiled at first use.
        "zero_allow_untested_optimizer": True,
        "zero_force_ds_cpu_optimizer": False,
        "checkpoint": {"load_universal": universal},
    }


def enter(device_type: str) -> None:
    """Make DeepSpeed use this device type and the ranks' process group; call before anything else of DeepSpeed is
    imported.
    """
    on_cpu = device_type != "cuda"
    # DeepSpeed would otherwise search for GPUs.
    os.environ["DS_ACCELERATOR"] = "cpu" if on_cpu else "cuda"
    # The statement `import … as` would bind the package torch, which that module has as an attribute.
    communication: Any = importlib.import_module("deepspeed.comm.torch")
    if on_cpu:
        # Otherwise a shared-memory backend is compiled at the first start, with compilers that few nodes have.
        communication.build_shm_op = lambda: None
    else:
        # Its own asks NVML, and takes the UUIDs of CUDA_VISIBLE_DEVICES for numbers.
        cuda: Any = importlib.import_module("deepspeed.accelerator.cuda_accelerator")
        cuda.CUDA_Accelerator.available_memory = _free_memory
    # A model that is sharded while it is loaded needs it before transformers would call it.
    importlib.import_module("deepspeed").init_distributed(
        dist_backend="gloo" if on_cpu else "nccl", auto_mpi_discovery=False, verbose=False
    )


def _free_memory(_accelerator: object, device_index: int | None = None) -> int:
    """Bytes of a GPU that are free; of the current one if ``device_index`` is None."""
    return torch.cuda.mem_get_info(device_index)[0]
