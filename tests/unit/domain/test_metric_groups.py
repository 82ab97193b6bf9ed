"""Groups of metrics by their names."""

import pytest

from app.domain.metric_groups import group_of, order_of, rank_of, tag_of


@pytest.mark.parametrize(
    ("name", "group"),
    [
        ("loss", "train"),
        ("rewards/chosen", "train"),
        ("evaluated", "train"),
        ("eval_loss", "eval"),
        ("test_loss", "eval"),
        ("bench/topics/accuracy", "eval"),
        ("gpu_memory_mb", "system"),
        ("tokens_per_second", "system"),
        ("system/fan_speed", "system"),
        ("<script>", "train"),
    ],
)
def test_a_metric_belongs_to_the_group_of_its_name(name: str, group: str) -> None:
    assert group_of(name) == group


def test_what_people_look_at_first_comes_first() -> None:
    assert sorted(["zeta", "grad_norm", "alpha", "loss"], key=rank_of) == ["loss", "grad_norm", "alpha", "zeta"]


@pytest.mark.parametrize(
    ("name", "tag"),
    [
        ("loss", "train/loss"),
        ("train_loss", "train/train_loss"),
        ("train/loss", "train/loss"),
        ("eval_loss", "eval/loss"),
        ("eval/accuracy", "eval/accuracy"),
        ("bench/mmlu", "eval/bench/mmlu"),
        ("tokens_per_second", "system/tokens_per_second"),
        ("system/power", "system/power"),
    ],
)
def test_tags_of_tensorboard_begin_with_the_group(name: str, tag: str):
    assert tag_of(name) == tag


def test_over_all_groups_the_training_loss_comes_first_and_the_system_last() -> None:
    names = ["cpu_percent", "eval_accuracy", "alpha", "learning_rate", "eval_loss", "train_loss", "loss", "loss_scale"]

    ordered = [
        "loss",
        "train_loss",
        "eval_loss",
        "eval_accuracy",
        "learning_rate",
        "alpha",
        "loss_scale",
        "cpu_percent",
    ]
    assert sorted(names, key=order_of) == ordered
