"""What PPO makes of rewards: advantages of tokens, and the two clipped losses. Tensors have shape (records, tokens).

Schulman et al., High-Dimensional Continuous Control Using Generalized Advantage Estimation, 2016 (arXiv:1506.02438),
and Proximal Policy Optimization Algorithms, 2017 (arXiv:1707.06347).
"""

import torch
from torch import Tensor


def token_rewards(scores: Tensor, kl: Tensor, mask: Tensor, kl_coef: float) -> Tensor:
    """What each token is worth: what leaving the base model costs there, and at the last one the completion's score.

    `scores` has shape (records,). As in Stiennon et al., Learning to summarize from human feedback, 2020
    (arXiv:2009.01325).
    """
    rewards = -kl_coef * kl * mask
    last = (mask.sum(1) - 1).clamp(min=0).long()
    has_tokens = mask.any(1)
    rewards[torch.arange(len(rewards)), last] += torch.where(has_tokens, scores, 0.0)
    return rewards


def advantages_of(rewards: Tensor, values: Tensor, mask: Tensor, gamma: float, lam: float) -> tuple[Tensor, Tensor]:
    """Generalized advantages, and the returns that the values should have been; 0 where `mask` is.

    After the last token nothing is to come.
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
    """With mean 0 and standard deviation 1 over all tokens of `mask`."""
    mean = masked_mean(values, mask)
    variance = masked_mean((values - mean) ** 2, mask)
    return (values - mean) * torch.rsqrt(variance + 1e-8) * mask


def policy_loss(ratio: Tensor, advantages: Tensor, mask: Tensor, cliprange: float) -> tuple[Tensor, Tensor]:
    """The clipped surrogate, and the share of tokens that clipping took out of it."""
    plain = -advantages * ratio
    clipped = -advantages * ratio.clamp(1 - cliprange, 1 + cliprange)
    return masked_mean(torch.max(plain, clipped), mask), masked_mean((clipped > plain).float(), mask)


def value_loss(values: Tensor, before: Tensor, returns: Tensor, mask: Tensor, cliprange: float) -> Tensor:
    """Half the squared error, of values that moved no further than `cliprange` from those before if that is more."""
    near = before + (values - before).clamp(-cliprange, cliprange)
    return 0.5 * masked_mean(torch.max((values - returns) ** 2, (near - returns) ** 2), mask)


def masked_mean(values: Tensor, mask: Tensor) -> Tensor:
    """Over all tokens of `mask`; 0 without any."""
    return (values * mask).sum() / mask.sum().clamp(min=1)
