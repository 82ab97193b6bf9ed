"""Metrics of built-in trainers by training type: per step, and on validation and test data."""

import math

from app.domain.spec.hyperparameters.rlhf import REWARD_METHOD

COMMON = ("loss", "mean_token_accuracy", "entropy")
# Preference optimization: implicit rewards (beta × log ratio to the reference model) of chosen and rejected answers,
# their margin, how often it is positive, and the answers' log probabilities.
PREFERENCES = (
    *("rewards/chosen", "rewards/rejected", "rewards/margins", "rewards/accuracies"),
    *("logps/chosen", "logps/rejected"),
)
# Policy optimization: mean and standard deviation of rewards, KL to the base model, completion length in tokens, and
# fraction of completions that were cut off.
REINFORCEMENT = ("reward", "reward_std", "kl", "completion_length", "completions_cut")
# A grader: the share of completions that it gave no reward, and the mean reward of each grader of a multi grader.
GRADER_ERRORS = "grader_errors"
OF_GRADERS = "graders/"  # before their names
# PPO: both losses, and the fraction of clipped tokens; per step only.
OF_PPO = ("policy_loss", "value_loss", "clip_ratio")
# Completions by the engine: how long a step waited for them, how much of that weights took to rollouts, their bytes.
OF_GENERATION = ("generation_seconds", "weights_seconds", "weights_bytes")
# Reward modelling: how often and by how much the chosen answer scores higher, and the mean reward.
JUDGEMENTS = ("accuracy", "margin", "mean_reward")
MORE = {"DPO": PREFERENCES, "RLHF": REINFORCEMENT, REWARD_METHOD: JUDGEMENTS}
# A policy has no target tokens; a reward model predicts none.
_NOT_MEASURED = {"RLHF": ("mean_token_accuracy",), REWARD_METHOD: ("mean_token_accuracy", "entropy")}
# Default metric for the best checkpoint, where it is not the evaluation loss.
BEST = {"RLHF": "eval_reward"}
# Measured on validation and test data only.
ONLY_EVALUATED = {"CONTINUED_PRETRAIN": ("perplexity",)}
EVERY = (
    *COMMON,
    *OF_PPO,
    *OF_GENERATION,
    GRADER_ERRORS,
    *(name for names in (*MORE.values(), *ONLY_EVALUATED.values()) for name in names),
)
EVAL_PREFIX = "eval_"


def trained(method: str) -> tuple[str, ...]:
    """Metrics of a step, by rlhf.method_of."""
    left_out = _NOT_MEASURED.get(method, ())
    return (*(name for name in COMMON if name not in left_out), *MORE.get(method, ()))


def evaluated(method: str) -> tuple[str, ...]:
    """Metrics of an evaluation, without their prefix."""
    return trained(method) + ONLY_EVALUATED.get(method, ())


def perplexity(loss: float) -> float:
    """exp(loss); infinite on overflow."""
    try:
        return math.exp(loss)
    except OverflowError:
        return math.inf


def described() -> str:
    """Metrics that only some training types have, in words."""
    also = {**MORE, **{name: [EVAL_PREFIX + each for each in found] for name, found in ONLY_EVALUATED.items()}}
    return "; ".join(f"{name} also {', '.join(found)}" for name, found in also.items())
