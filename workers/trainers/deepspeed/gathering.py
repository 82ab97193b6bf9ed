"""Weights that ZeRO stage 3 divides among ranks: gathered, one parameter after the other."""

import torch
import torch.distributed as dist
from deepspeed.runtime.zero.partition_parameters import GatheredParameters
from torch import nn

from workers.trainers.rollouts.weights import frozen_digest, trained


def gathered_weights(model: nn.Module) -> dict[str, torch.Tensor]:
    """As `parallelism.WeightGathering`."""
    found: dict[str, torch.Tensor] = {}
    for name, parameter in trained(model).items():
        with GatheredParameters([parameter]):
            if dist.get_rank() == 0:
                found[name] = parameter.detach().cpu().clone()
    return found


def gathered_digest(model: nn.Module, dtype: str) -> str:
    """As `rollouts.weights.frozen_digest`; collective."""
    return frozen_digest(model, dtype, whole=lambda parameter: GatheredParameters([parameter]))
