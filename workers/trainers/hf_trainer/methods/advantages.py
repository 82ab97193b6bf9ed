"""PPO's arithmetic: per-token advantages and the two clipped losses. Tensors have shape (records, tokens).

Schulman et al., High-Dimensional Continuous Control Using Generalized Advantage Estimation, 2016 (arXiv:1506.02438),
and Proximal Policy Optimization Algorithms, 2017 (arXiv:1707.06347).
"""

import torch
from torch import Tensor


def token_rewards(scores: Tensor, kl: Tensor, mask: Tensor, kl_coef: float) -> Tensor:
    """Reward per token: the KL penalty at each token, plus the completion's score at the last one.

    `scores` has shape (records,). As in Stiennon et al., Learning to summarize from human feedback, 2020
    (arXiv:2009.01325).
    """
    rewards = -kl_coef * kl * mask
    last = (mask.sum(1) - 1).clamp(min=0).long()
    has_tokens = mask.any(1)
    rewards[torch.arange(len(rewards)), last] += torch.where(has_tokens, scores, 0.0)
    return rewards


def advantages_of(rewards: Tensor, values: Tensor, mask: Tensor, gamma: float, lam: float) -> tuple[Tensor, Tensor]:
    """Generalized advantage estimates, and the returns as targets for the values; 0 where `mask` is 0.

    The value after the last token is 0.
    """
    values = values * mask
    found = torch.zeros_like(rewards)
    following = torch.zeros_like(rewards[:, 0])
    for token in reversed(range(rewards.shape[1])):
        after = values[:, token + 1] if token + 1 < rewards.shape[1] else torch.zeros_like(following)
        difference = rewards[:, token] + gamma * after - values[:, token]
        following = difference + gamma * lam * following
        found[:, token] = following
    return found * mask, (found + values) * mask


def whitened(values: Tensor, mask: Tensor) -> Tensor:
    """Normalized to mean 0 and standard deviation 1 over all tokens of `mask`."""
    mean = masked_mean(values, mask)
    variance = masked_mean((values - mean) ** 2, mask)
    return (values - mean) * torch.rsqrt(variance + 1e-8) * mask


def policy_loss(ratio: Tensor, advantages: Tensor, mask: Tensor, cliprange: float) -> tuple[Tensor, Tensor]:
    """The clipped surrogate loss, and the fraction of clipped tokens."""
    plain = -advantages * ratio
    clipped = -advantages * ratio.clamp(1 - cliprange, 1 + cliprange)
    return masked_mean(torch.max(plain, clipped), mask), masked_mean((clipped > plain).float(), mask)


def value_loss(values: Tensor, before: Tensor, returns: Tensor, mask: Tensor, cliprange: float) -> Tensor:
    """Half the squared error, with values clipped to within `cliprange` of the earlier ones where that is larger."""
    near = before + (values - before).clamp(-cliprange, cliprange)
    return 0.5 * masked_mean(torch.max((values - returns) ** 2, (near - returns) ** 2), mask)


def masked_mean(values: Tensor, mask: Tensor) -> Tensor:
    """Mean over all tokens of `mask`; 0 for an empty mask."""
    return (values * mask).sum() / mask.sum().clamp(min=1)
