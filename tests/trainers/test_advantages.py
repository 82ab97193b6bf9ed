"""Advantages and losses of PPO, against numbers worked out by hand."""

import pytest
import torch
from torch import tensor

from workers.trainers.hf_trainer.methods.advantages import (
    advantages_of,
    masked_mean,
    policy_loss,
    token_rewards,
    value_loss,
    whitened,
)

MASK = tensor([[1, 1, 1], [1, 1, 0]])


def test_a_completion_is_worth_its_score_at_its_last_token_and_each_token_what_leaving_the_base_model_costs():
    kl = tensor([[1.0, 0.0, 2.0], [0.5, -1.0, 9.0]])

    found = token_rewards(tensor([10.0, 20.0]), kl, MASK, 0.5)

    assert torch.equal(found, tensor([[-0.5, 0.0, 9.0], [-0.25, 20.5, 0.0]]))


def test_a_completion_without_tokens_is_worth_nothing():
    found = token_rewards(tensor([7.0]), tensor([[1.0, 1.0]]), tensor([[0, 0]]), 0.5)

    assert torch.equal(found, tensor([[0.0, 0.0]]))


def test_advantages_discount_what_was_not_expected():
    rewards, values = tensor([[0.0, 0.0, 1.0]]), tensor([[0.5, 0.25, 0.5]])

    found, returns = advantages_of(rewards, values, tensor([[1, 1, 1]]), gamma=0.5, lam=0.5)

    # Differences: 0 + 0.5 * 0.25 - 0.5 = -0.375; 0 + 0.5 * 0.5 - 0.25 = 0; 1 - 0.5 = 0.5.
    assert found.tolist() == [[pytest.approx(-0.375 + 0.25 * (0.25 * 0.5)), pytest.approx(0.25 * 0.5), 0.5]]
    assert torch.allclose(returns, found + values)


def test_nothing_is_expected_after_the_last_token():
    rewards, values = tensor([[0.0, 1.0, 0.0]]), tensor([[0.0, 0.0, 100.0]])

    found, returns = advantages_of(rewards, values, tensor([[1, 1, 0]]), gamma=1.0, lam=1.0)

    assert torch.equal(found, tensor([[1.0, 1.0, 0.0]]))
    assert torch.equal(returns, tensor([[1.0, 1.0, 0.0]]))


def test_whitened_numbers_have_mean_0_and_deviation_1_over_all_tokens_that_count():
    found = whitened(tensor([[1.0, 3.0, 5.0], [7.0, 9.0, 1e6]]), MASK)

    counted = found[MASK.bool()]
    assert counted.mean().item() == pytest.approx(0, abs=1e-6)
    assert counted.std(correction=0).item() == pytest.approx(1, abs=1e-6)
    assert found[1, 2] == 0


def test_a_policy_gains_nothing_from_moving_further_than_its_cliprange():
    ratio = tensor([[1.5, 1.1, 0.5]]).requires_grad_()

    loss, share = policy_loss(ratio, tensor([[1.0, 1.0, -1.0]]), tensor([[1, 1, 1]]), 0.2)
    loss.backward()

    assert loss.item() == pytest.approx((-1.2 - 1.1 + 0.8) / 3)
    assert share.item() == pytest.approx(2 / 3)
    assert ratio.grad is not None
    assert ratio.grad.tolist() == [[0.0, pytest.approx(-1 / 3), 0.0]]


def test_moving_the_wrong_way_is_never_clipped():
    loss, share = policy_loss(tensor([[0.5, 1.5]]), tensor([[1.0, -1.0]]), tensor([[1, 1]]), 0.2)

    assert loss.item() == pytest.approx((-0.5 + 1.5) / 2)
    assert share.item() == 0


def test_a_critic_that_moves_too_far_is_measured_by_where_it_should_have_stopped():
    values, before, returns = tensor([[2.0, 0.1]]), tensor([[0.0, 0.0]]), tensor([[2.0, 1.0]])

    # The first would be right, but is taken for 0.2: 1.8 off; the second moved by less: 0.9 off.
    assert value_loss(values, before, returns, tensor([[1, 1]]), 0.2).item() == pytest.approx((1.8**2 + 0.9**2) / 4)


def test_a_mean_over_no_token_is_0():
    assert masked_mean(tensor([[5.0]]), tensor([[0]])).item() == 0
