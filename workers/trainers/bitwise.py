"""Bitwise comparison of tensors."""

import torch


def bitwise_equal(left: torch.Tensor, right: torch.Tensor) -> bool:
    """Whether two tensors are bitwise equal; NaN equals NaN, and 0.0 differs from -0.0."""
    if left.dtype != right.dtype or left.shape != right.shape:
        return False
    pair = (tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8) for tensor in (left, right))
    return torch.equal(*pair)
