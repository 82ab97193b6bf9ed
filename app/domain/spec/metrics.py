"""What a built-in trainer measures of its training type: at each step, and of validation and test data."""

import math

from app.domain.spec.hyperparameters.rlhf import REWARD_METHOD

COMMON = ("loss", "mean_token_accuracy", "entropy")
# Of a model that learns preferences: how much more likely than to its reference the answers are to it (times beta),
# by how much the chosen ones are ahead, how often they are; and how likely the answers are.
PREFERENCES = (
    *("rewards/chosen", "rewards/rejected", "rewards/margins", "rewards/accuracies"),
    *("logps/chosen", "logps/rejected"),
)
# Of a policy that learns by rewards: what its completions are worth and how far those lie apart, how far it is from the
# base model, how long the completions are in tokens, and the share of them that was cut off.
REINFORCEMENT = ("reward", "reward_std", "kl", "completion_length", "completions_cut")
# Of PPO's two losses, and the share of tokens that has moved too far to count; of a step alone.
OF_PPO = ("policy_loss", "value_loss", "clip_ratio")
# Of a model that learns to judge: how often and by how much the chosen answers of pairs are worth more, and what all
# answers are worth.
JUDGEMENTS = ("accuracy", "margin", "mean_reward")
MORE = {"DPO": PREFERENCES, "RLHF": REINFORCEMENT, REWARD_METHOD: JUDGEMENTS}
# Nobody says which token would have been the right one; who judges predicts none.
_NOT_MEASURED = {"RLHF": ("mean_token_accuracy",), REWARD_METHOD: ("mean_token_accuracy", "entropy")}
# What tells which checkpoint is best when a job does not say, unless it is the loss of the evaluation.
BEST = {"RLHF": "eval_reward"}
# Of validation and test data only.
ONLY_EVALUATED = {"CONTINUED_PRETRAIN": ("perplexity",)}
EVERY = (*COMMON, *OF_PPO, *(name for names in (*MORE.values(), *ONLY_EVALUATED.values()) for name in names))
EVAL_PREFIX = "eval_"


def trained(method: str) -> tuple[str, ...]:
    """What a step tells of the model, by rlhf.method_of."""
    left_out = _NOT_MEASURED.get(method, ())
    return (*(name for name in COMMON if name not in left_out), *MORE.get(method, ()))


def evaluated(method: str) -> tuple[str, ...]:
    """What an evaluation tells of it, without its prefix."""
    return trained(method) + ONLY_EVALUATED.get(method, ())


def perplexity(loss: float) -> float:
    """Among how many equally likely tokens a model with this loss chooses."""
    try:
        return math.exp(loss)
    except OverflowError:
        return math.inf


def described() -> str:
    """What only some types have, in words."""
    also = {**MORE, **{name: [EVAL_PREFIX + each for each in found] for name, found in ONLY_EVALUATED.items()}}
    return "; ".join(f"{name} also {', '.join(found)}" for name, found in also.items())
