"""What is better of a metric, by its name."""

import pytest

from app.domain.spec.metric_goals import goal_of


@pytest.mark.parametrize(
    ("metric", "goal"),
    [
        ("loss", "minimize"),
        ("eval_loss", "minimize"),
        ("perplexity", "minimize"),
        ("val/word.error", "minimize"),
        ("mean_token_accuracy", "maximize"),
        ("eval_reward", "maximize"),
        ("rewards/margins", "maximize"),
        ("test-F1", "maximize"),
        ("reward_std", None),
        ("rewards/rejected", None),
        ("kl", None),
        ("report.gpu_time_ms", None),
        ("glossary", None),
    ],
)
def test_the_goal_follows_from_the_name(metric: str, goal: str | None) -> None:
    assert goal_of(metric) == goal
